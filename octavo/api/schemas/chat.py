"""Body of POST /v1/chat/completions: messages, tools and what only chats have."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from octavo.api.schemas.common import FirstError, Integer, SamplingBody, Schema

MAX_TOOLS = 512


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


class Message(Schema):
    """One message. Further keys go to the chat template as they are."""

    model_config = ConfigDict(extra="allow")

    role: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    content: str | Annotated[list[str | ContentPart], FirstError] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], FirstError] | None = None
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


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]
Tools = Annotated[list[Tool], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]
Documents = Annotated[list[dict[str, Any]], FirstError]


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
