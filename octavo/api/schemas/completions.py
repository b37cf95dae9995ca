"""Body of POST /v1/completions."""

from typing import Any

from octavo.api.schemas.common import Integer, SamplingBody


class CompletionBody(SamplingBody):
    """A text, or token ids, or a list of either."""

    prompt: str | list[str] | list[Integer] | list[list[Integer]]
    logprobs: Integer | None = None
    echo: bool | None = None
    suffix: Any = None
    prompt_embeds: Any = None
