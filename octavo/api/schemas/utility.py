"""Bodies of /tokenize, /detokenize and /abort_requests."""

from typing import Any

from pydantic import ConfigDict

from octavo.api.schemas.chat import Documents, Messages, Tools
from octavo.api.schemas.common import Schema, Texts, Tokens


class TokenizeText(Schema):
    """/tokenize of a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(Schema):
    """/tokenize of a chat: the same fields as in a chat request."""

    model: str | None = None
    messages: Messages
    tools: Tools | None = None
    chat_template: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    documents: Documents | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Schema):
    """/detokenize."""

    model: str | None = None
    tokens: Tokens


class AbortBody(Schema):
    """/abort_requests. Without ids: all; so a misspelt key must not be ignored."""

    model_config = ConfigDict(extra="forbid")

    request_ids: Texts | None = None
