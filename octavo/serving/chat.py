"""Chat requests: messages and options to a plan for the engine. Slow: runs on a worker thread."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from octavo.errors import InvalidRequest
from octavo.serving.context import Context
from octavo.serving.generation import Job, Plan
from octavo.serving.messages import template_messages
from octavo.serving.models import check_model
from octavo.serving.params import (
    SamplingFields,
    build_params,
    check_fields,
    fit_to_prompt,
    num_alternatives,
)
from octavo.serving.prompts import truncate
from octavo.text.stop import stop_automaton

logger = logging.getLogger(__name__)

# Template variables that a request may not set: they are fields of the request itself, or code.
PROTECTED_VARIABLES = (
    *("chat_template", "tokenize", "messages", "tools", "documents"),
    *("add_generation_prompt", "continue_final_message"),
)


class RenderFields(Protocol):
    """What a template is rendered with, beside messages and tools."""

    chat_template: Any
    chat_template_kwargs: dict[str, Any] | None
    reasoning_effort: Any
    documents: list[dict[str, Any]] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    add_special_tokens: bool | None


class ChatFields(SamplingFields, RenderFields, Protocol):
    """What is read of a chat request."""

    model: str | None
    max_completion_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None
    tool_choice: Any
    parallel_tool_calls: bool | None
    echo: bool | None
    cache_salt: str | None
    return_tokens_as_token_ids: bool | None
    truncation_side: Any


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages and tools as the client wrote them: templates show keys in the client's order."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        names = frozenset(tool["function"]["name"] for tool in self.tools or ())
        object.__setattr__(self, "names", names)


def plan_chat(context: Context, fields: ChatFields, chat: Chat, request_id: str) -> Plan:
    """Check everything and tokenise. Raises RequestError; nothing has been started then."""
    check_model(fields.model, context.served.name)
    check_fields(fields, context.rules)
    _check_tool_choice(fields.tool_choice, chat)
    _check_parallel_calls(fields.parallel_tool_calls, chat)
    if fields.top_logprobs is not None and not fields.logprobs:
        raise InvalidRequest(
            "top_logprobs is given, but logprobs is not true; set it or leave it out",
            param="top_logprobs",
        )
    limits = context.rules.limits
    alternatives = num_alternatives("top_logprobs", fields.top_logprobs, limits)
    prompt_logprobs = num_alternatives("prompt_logprobs", fields.prompt_logprobs, limits)
    params = build_params(
        fields,
        context.rules,
        context.served.tokenizer,
        max_tokens=_max_tokens(fields),
        logprobs=(alternatives or 0) if fields.logprobs else None,
        prompt_logprobs=prompt_logprobs,
    )
    token_ids = truncate(
        tokenise_chat(context, fields, chat, fields.truncate_prompt_tokens is not None),
        fields.truncate_prompt_tokens,
        fields.truncation_side,
        limits,
    )
    job = Job(
        token_ids,
        fit_to_prompt(params, len(token_ids), limits, "messages"),
        stop_automaton(params.stop),
        prefix=_echo(fields, chat),
    )
    return Plan(
        request_id,
        [job],
        n=fields.n or 1,
        priority=fields.priority or 0,
        cache_salt=fields.cache_salt,
        tokens_as_ids=bool(fields.return_tokens_as_token_ids),
        prompt_logprobs=prompt_logprobs,
    )


def tokenise_chat(
    context: Context, fields: RenderFields, chat: Chat, any_length: bool = False
) -> list[int]:
    """The token ids of a chat as the model's template writes it.

    any_length: a chat longer than the model is no error.
    """
    if fields.chat_template is not None:
        raise InvalidRequest(
            "chat_template: a request may not bring a template; leave it out",
            param="chat_template",
        )
    goes_on = bool(fields.continue_final_message)
    add_prompt = (
        not goes_on if fields.add_generation_prompt is None else fields.add_generation_prompt
    )
    if goes_on and add_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt cannot both be true",
            param="continue_final_message",
        )
    rendered = context.served.template.render(
        template_messages(chat.messages),
        tools=None if chat.tools is None else [dict(tool) for tool in chat.tools],
        documents=fields.documents,
        add_generation_prompt=add_prompt,
        continue_final_message=goes_on,
        kwargs=_variables(context, fields),
    )
    return context.prompts.encode_chat(
        rendered, bool(fields.add_special_tokens), any_length=any_length
    )


def _variables(context: Context, fields: RenderFields) -> dict[str, Any]:
    given = fields.chat_template_kwargs or {}
    for name in PROTECTED_VARIABLES:
        if name in given:
            raise InvalidRequest(
                f"chat_template_kwargs may not set {name}", param="chat_template_kwargs"
            )
    variables: dict[str, Any] = {"enable_thinking": context.config.model.enable_thinking}
    if fields.reasoning_effort is not None:
        variables["reasoning_effort"] = fields.reasoning_effort
        variables["enable_thinking"] = fields.reasoning_effort != "none"
    return variables | given


def _check_tool_choice(choice: Any, chat: Chat) -> None:
    """None and `auto` need nothing; the others need grammars, which are not built yet."""
    if choice in (None, "none", "auto"):
        return
    name = getattr(getattr(choice, "function", None), "name", None)
    shown = repr(choice) if name is None else f"the function {name!r}"
    if not chat.tools:
        why = "but the request has no tools"
    elif name is not None and name not in chat.names:
        why = "which is not among the tools"
    else:
        why = "which is not supported yet; use auto or none"
    raise InvalidRequest(f"tool_choice is {shown}, {why}", param="tool_choice")


def _check_parallel_calls(parallel: bool | None, chat: Chat) -> None:
    """Without tools there are no calls, and nothing to limit."""
    if parallel is False and chat.tools:
        raise InvalidRequest(
            "parallel_tool_calls is false, which is not supported yet; leave it out",
            param="parallel_tool_calls",
        )


def _max_tokens(fields: ChatFields) -> int | None:
    """The client's limit, None: as many as fit."""
    name = "max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens"
    value: int | None = getattr(fields, name)
    if value == 0:
        raise InvalidRequest(
            f"{name} is 0; allowed: at least 1, or -1 for as many as fit", param=name
        )
    return None if value == -1 else value


def _echo(fields: ChatFields, chat: Chat) -> str:
    """What the answer begins with: the last message, when the model goes on with it."""
    if not fields.echo or chat.messages[-1].get("role") != "assistant":
        return ""
    text: str = template_messages(chat.messages[-1:])[0]["content"]
    return text
