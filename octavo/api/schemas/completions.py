"""Body of POST /v1/completions."""

from typing import Annotated, Any

from octavo.api.schemas.common import FirstError, Integer, Integers, SamplingBody, Texts


class CompletionBody(SamplingBody):
    """A text, or token ids, or a list of either."""

    prompt: str | Texts | Integers | Annotated[list[Integers], FirstError]
    logprobs: Integer | None = None
    echo: bool | None = None
    suffix: Any = None
    prompt_embeds: Any = None
