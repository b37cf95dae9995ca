"""Bodies and stream frames that the text routes answer with, encoded by msgspec.

`UNSET` fields are left out; None is written as null.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

FinishReason = Literal["stop", "length", "tool_calls", "abort", "error"]


class PromptTokensDetails(msgspec.Struct):
    """Part of the prompt that the prefix cache held."""

    cached_tokens: int


class UsageInfo(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails


class PromptLogprob(msgspec.Struct):
    """One token at one position of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]  # token id → what the model thought of it

# --------------------------------------------------------------------------------- completions


class CompletionLogprobs(msgspec.Struct):
    """Parallel arrays, one entry a token; null where the model has no opinion."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    """One choice, or in a stream a piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct):
    """Answer of /v1/completions, and a frame of its stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageInfo | UnsetType | None = UNSET
    object: Literal["text_completion"] = "text_completion"


# ---------------------------------------------------------------------------------------- chat


class ChatTokenScore(msgspec.Struct):
    """One token; `bytes` are exact where `token` shows U+FFFD."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenEntry(msgspec.Struct):
    """The token of one position and the most likely ones."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[ChatTokenScore]


class ChatLogprobs(msgspec.Struct):
    """One entry a token."""

    content: list[ChatTokenEntry]


class ChatMessage(msgspec.Struct):
    """The assistant's message."""

    content: str | None
    role: Literal["assistant"] = "assistant"


class ChatChoice(msgspec.Struct):
    """One choice."""

    index: int
    message: ChatMessage
    finish_reason: FinishReason | None
    logprobs: ChatLogprobs | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    """Answer of /v1/chat/completions."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageInfo
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    object: Literal["chat.completion"] = "chat.completion"


class ChatDelta(msgspec.Struct):
    """What a frame adds to the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    """A piece of one choice."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """A frame of a chat's stream."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: UsageInfo | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


# -------------------------------------------------------------------------------- small routes


class ModelCard(msgspec.Struct):
    """A served model. Permissions are what OpenAI clients of old expect."""

    id: str
    created: int
    root: str
    max_model_len: int
    parent: str | None = None
    owned_by: str = "vllm"
    permission: list[dict[str, Any]] = []
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct):
    """Answer of /v1/models."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Tokenized(msgspec.Struct):
    """Answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(msgspec.Struct):
    """Answer of /detokenize."""

    prompt: str


class Aborted(msgspec.Struct):
    """Answer of /abort_requests: how many client requests were ended."""

    aborted: int
    status: Literal["aborted"] = "aborted"


class CacheReset(msgspec.Struct):
    """Answer of /reset_prefix_cache."""

    success: bool
