"""Body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from octavo.api.schemas.common import (
    MAX_TEXTS,
    MAX_TOKENS,
    Integer,
    SamplingBody,
    Texts,
    Tokens,
    check_length,
)


def _bounded(prompt: object) -> object:
    is_tokens = isinstance(prompt, list) and len(prompt) > 0 and isinstance(prompt[0], int)
    check_length(prompt, MAX_TOKENS if is_tokens else MAX_TEXTS)
    return prompt


Prompt = Annotated[
    str | Texts | Tokens | Annotated[list[Tokens], Field(max_length=MAX_TEXTS, fail_fast=True)],
    BeforeValidator(_bounded),
]


class CompletionBody(SamplingBody):
    """A text, or token ids, or a list of either."""

    prompt: Prompt
    logprobs: Integer | None = None
    echo: bool | None = None
    suffix: Any = None
    prompt_embeds: Any = None
