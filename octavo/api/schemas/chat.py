"""Body of POST /v1/chat/completions: messages, tools and what only chats have."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from octavo.api.schemas.common import Integer, SamplingBody, Schema, check_length

MAX_TOOLS = 512
MAX_MESSAGES = 2**13
MAX_PARTS = 2**12  # of one message
MAX_CALLS = 2**10  # of one message
MAX_INSIDE = 2**13  # parts and calls of all messages


class FunctionCall(Schema):
    """A call that an assistant made earlier. `arguments`: JSON text, as OpenAI has it, or a map."""

    model_config = ConfigDict(extra="allow")

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(Schema):
    """One of an assistant message's calls."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCall


class ContentPart(Schema):
    """A part of a message. Which types are served is checked in `serving/messages.py`."""

    model_config = ConfigDict(extra="allow")

    type: str


Parts = Annotated[list[str | ContentPart], Field(max_length=MAX_PARTS, fail_fast=True)]
Calls = Annotated[list[ToolCall], Field(max_length=MAX_CALLS, fail_fast=True)]


class Message(Schema):
    """One message. Further keys go to the chat template as they are."""

    model_config = ConfigDict(extra="allow")

    role: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    content: str | Parts | None = None
    name: str | None = None
    tool_calls: Calls | None = None
    tool_call_id: str | None = None


class FunctionDefinition(Schema):
    """What a tool is."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Schema):
    """A tool that the model may call."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]
    function: FunctionDefinition


def _bounded(messages: object) -> object:
    check_length(messages, MAX_MESSAGES)
    inside = 0
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            lists = (message.get("content"), message.get("tool_calls"))
            inside += sum(len(value) for value in lists if isinstance(value, list))
    if inside > MAX_INSIDE:
        raise PydanticCustomError(
            "too_many", f"must have at most {MAX_INSIDE} content parts and tool calls together"
        )
    return messages


Messages = Annotated[
    list[Message],
    Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    BeforeValidator(_bounded),
]
Tools = Annotated[list[Tool], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]
Documents = Annotated[list[dict[str, Any]], Field(max_length=MAX_PARTS, fail_fast=True)]


class NamedFunction(Schema):
    """The function of a named choice."""

    name: str


class NamedToolChoice(Schema):
    """`tool_choice` that names one function."""

    type: Literal["function"]
    function: NamedFunction


class ChatBody(SamplingBody):
    """A chat."""

    messages: Messages
    max_completion_tokens: Integer | None = Field(None, description="Wins over max_tokens.")
    logprobs: bool | None = None
    top_logprobs: Integer | None = Field(None, description="Needs logprobs.")
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template: Any = Field(None, description="Refused: a request may not bring a template.")
    chat_template_kwargs: dict[str, Any] | None = None
    include_reasoning: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = Field(None, description="Begin with the last message, if the role fits.")
    documents: Documents | None = None
    mm_processor_kwargs: Any = None
    media_io_kwargs: Any = None
    modalities: Any = None
    audio: Any = None
    return_prompt_text: Any = None
