"""What the request bodies of all text routes share: strict types and the sampling fields."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from pydantic_core import PydanticCustomError


def _whole(value: object) -> object:
    """`8.0` is a whole number in JSON; strict integers would refuse it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain_id(value: str) -> str:
    if not all("!" <= character <= "~" and character != "#" for character in value):
        raise ValueError("must be printable ASCII without spaces and #")
    return value


Integer = Annotated[int, BeforeValidator(_whole)]
MAX_TEXTS = 2**14
MAX_IDS = 2**18  # more than any vocabulary has
MAX_TOKENS = 2**20  # of a prompt

# A body with a million wrong items must not make a million errors. And the checks hold the
# interpreter's lock, so they must not see a million items either.
Texts = Annotated[list[str], Field(max_length=MAX_TEXTS, fail_fast=True)]
TokenIds = Annotated[list[int], Field(max_length=MAX_IDS, fail_fast=True)]
Tokens = Annotated[list[int], Field(max_length=MAX_TOKENS, fail_fast=True)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=1024)]

# `#` sets a request's choices apart in the engine.
RequestId = Annotated[
    str, StringConstraints(min_length=1, max_length=256), AfterValidator(_plain_id)
]


def check_length(value: object, most: int) -> None:
    """For validators that look before any item is checked."""
    if isinstance(value, list) and len(value) > most:
        raise PydanticCustomError("too_long", "too long", {"max_length": most})


class Schema(BaseModel):
    """Types are taken as they are (`"8"` is no number); unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class StreamOptions(Schema):
    """`stream_options`."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingBody(Schema):
    """Fields that completions and chats share. Ranges are checked in `serving/params.py`."""

    model: str | None = Field(None, description="The served model's name; absent: that one.")
    temperature: float | None = Field(None, description="0 is greedy. Default 1.")
    top_p: float | None = None
    top_k: Integer | None = Field(None, description="0 and -1: off.")
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: Integer | None = Field(None, description="-1: none.")
    n: Integer | None = Field(None, description="Choices per prompt.")
    max_tokens: Integer | None = Field(None, description="-1: as many as fit.")
    min_tokens: Integer | None = None
    stop: str | Texts | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = Field(
        None, description="Without effect: no spaces are ever added."
    )
    logit_bias: dict[str, Any] | None = Field(
        None, max_length=MAX_IDS, description="Token id as text -> bias, clamped to -100..100."
    )
    allowed_token_ids: TokenIds | None = None
    bad_words: Texts | None = None
    prompt_logprobs: Integer | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stream_interval: Integer | None = Field(None, description="Tokens per streamed frame.")
    priority: Integer | None = None
    cache_salt: ShortText | None = Field(None, description="Isolates prefix-cache entries.")
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: Integer | None = Field(
        None, description="Keep only the last tokens of a prompt; -1: as many as fit."
    )
    truncation_side: Literal["left", "right"] | None = None
    request_id: RequestId | None = Field(None, description="Becomes part of the answer's id.")
    user: str | None = Field(None, description="Ignored.")
    # Known, but not built yet; `NOT_BUILT` in serving/params.py says which values are refused.
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_json_object: Any = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    best_of: Integer | None = None
    logprob_token_ids: Any = None
    kv_transfer_params: Any = None
    ec_transfer_params: Any = None
    vllm_xargs: Any = None
    repetition_detection: Any = None
    thinking_token_budget: Any = None
