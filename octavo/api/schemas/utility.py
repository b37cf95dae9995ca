"""Bodies of /tokenize, /detokenize and /abort_requests."""

from typing import Annotated, Any

from pydantic import Field

from octavo.api.schemas.chat import MAX_TOOLS, Message, Tool
from octavo.api.schemas.common import Integer, Schema


class TokenizeText(Schema):
    """/tokenize of a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(Schema):
    """/tokenize of a chat: the same fields as in a chat request."""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: Annotated[list[Tool], Field(min_length=1, max_length=MAX_TOOLS)] | None = None
    chat_template: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Schema):
    """/detokenize."""

    model: str | None = None
    tokens: list[Integer]


class AbortBody(Schema):
    """/abort_requests. Without ids: all."""

    request_ids: list[str] | None = None
