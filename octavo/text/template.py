"""Chat templates: from messages to the prompt's text. Strangers write the templates and strangers
write the messages; neither can stop the server nor forge the template's control tokens.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import InvalidRequest, ModelFileError
from octavo.text.marks import Marker, free_characters, json_escape, strings_in
from octavo.text.tokenizer import RenderedPrompt
from octavo.weights.mapped import read_json_object

if TYPE_CHECKING:
    from octavo.text.meter import Limits

log = logging.getLogger(__name__)

MAX_SOURCE = 1 << 16  # characters: a few seconds of compiling; the longest known has 20,000
MAX_SAID = 1000  # characters of a template's own words in a message
REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")


class ChatTemplate:
    """Renders chats. Without a source, or with one that does not compile, messages are joined as
    `role: content` lines, which is logged. Thread-safe.
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str | None,
        eos_token: str | None,
        special_tokens: Iterable[str],
        now: Callable[[], datetime] = datetime.now,
        limits: "Limits | None" = None,
    ) -> None:
        """`special_tokens`: the texts of the control tokens, which users may not write. `now` is
        the time that the template may ask for."""
        from octavo.text.sandbox import BoundedEnvironment, Limits

        self._limits = limits or Limits()
        self.source = source
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._tokens = {name: token for name, token in tokens.items() if token is not None}
        self._marker = Marker(special_tokens)
        self._environment = BoundedEnvironment(now)
        self._template = None
        if source is not None and len(source) > MAX_SOURCE:
            log.warning(
                "the chat template is longer than %d characters: "
                "chats are joined as `role: content` lines",
                MAX_SOURCE,
            )
            return
        if source is None:
            log.warning("the model has no chat template: chats are joined as `role: content` lines")
            return
        try:
            self._template = self._environment.compile_bounded(source)
        except Exception as error:  # whatever a stranger's text makes of parser and compiler
            log.warning(
                "the chat template does not compile (%s): "
                "chats are joined as `role: content` lines",
                _said(error),
            )

    @property
    def is_fallback(self) -> bool:
        """Whether messages are joined because there is no template that compiles."""
        return self._template is None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """The prompt, with break marks in control tokens that came from the arguments.

        continue_final_message: the text ends where the last message's content ends. `kwargs`:
        further variables of the template. Raises InvalidRequest, param "messages", when the
        template refuses the messages, fails on them or exceeds its limits.
        """
        if not messages:
            raise InvalidRequest("messages must not be empty", param="messages")
        if continue_final_message and add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message needs add_generation_prompt to be false",
                param="continue_final_message",
            )
        prepared = [_prepare(message, i) for i, message in enumerate(messages)]
        given = {"tools": tools, "documents": documents, **(kwargs or {})}
        mark, end = free_characters((prepared, given, self.source), 2)
        variables = {name: self._marker.mark(value, mark) for name, value in given.items()}
        chat = self._marker.mark(prepared, mark)
        if continue_final_message:
            chat[-1] = _with_end(chat[-1], end + " ")
        text = self._render(chat, add_generation_prompt, variables)
        text = text.replace(json_escape(mark), mark)
        if continue_final_message:
            text = _cut(text, end)
        return RenderedPrompt(text, mark if mark in text else "")

    def _render(
        self, chat: list[dict[str, Any]], add_generation_prompt: bool, variables: Mapping[str, Any]
    ) -> str:
        if self._template is None:
            return _join(chat, add_generation_prompt)
        from octavo.text.meter import size_of
        from octavo.text.sandbox import LimitExceeded, TemplateRefusal

        everything = {
            **self._tokens,
            **variables,
            "messages": chat,
            "add_generation_prompt": add_generation_prompt,
        }
        input_bytes = sum(map(size_of, strings_in([chat, dict(variables)])))
        try:
            return self._environment.render_bounded(
                self._template, everything, self._limits, input_bytes
            )
        except LimitExceeded as error:
            message = f"the chat template asks for {error}; it is refused"
        except TemplateRefusal as error:
            message = f"the chat template refused the messages: {_said(error)}"
        except (RecursionError, MemoryError):
            message = "the chat template asks for calls nested too deeply; it is refused"
        except Exception as error:  # the template's own mistakes come as any kind of error
            message = f"the chat template failed on these messages: {_said(error)}"
        raise InvalidRequest(message, param="messages")


def _said(error: Exception) -> str:
    """What a template's error says; a stranger's template may say megabytes."""
    text = str(error)
    return text if len(text) <= MAX_SAID else text[:MAX_SAID] + "…"


def _prepare(message: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A copy without nulls, whose tool calls have objects as arguments and whose reasoning has all
    its names. (transformers 5.24 leaves nulls out too: many templates write them as `None`.)"""
    copy = {key: value for key, value in message.items() if value is not None}
    reasoning = next((copy[name] for name in REASONING_NAMES if name in copy), None)
    if reasoning is not None:
        copy.update({name: copy.get(name) or reasoning for name in REASONING_NAMES})
    calls = copy.get("tool_calls")
    if isinstance(calls, (list, tuple)):
        copy["tool_calls"] = [
            _decode_call(call, f"messages.{index}.tool_calls.{i}") for i, call in enumerate(calls)
        ]
    return copy


def _decode_call(call: Any, where: str) -> Any:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    function = dict(call["function"])
    function["arguments"] = _decode_arguments(function.get("arguments"), where)
    return {**call, "function": function}


def _decode_arguments(arguments: Any, where: str) -> dict[str, Any]:
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise InvalidRequest(
                f"{where}.function.arguments is not valid JSON; it must be a JSON object",
                param="messages",
            ) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(
            f"{where}.function.arguments must be a JSON object, not another JSON value",
            param="messages",
        )
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _with_end(message: dict[str, Any], end: str) -> dict[str, Any]:
    """The message with `end` behind its last text."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + end}
    parts = list(content) if isinstance(content, list) else []
    for i in reversed(range(len(parts))):
        if isinstance(parts[i], dict) and isinstance(parts[i].get("text"), str):
            parts[i] = {**parts[i], "text": parts[i]["text"] + end}
            return {**message, "content": parts}
    raise InvalidRequest(
        "continue_final_message needs a last message with text content", param="messages"
    )


def _cut(text: str, end: str) -> str:
    """What stands before `end`. A template that trims contents took the space behind it away; then
    the space before it goes too."""
    place = text.rfind(end)
    if place < 0:
        raise InvalidRequest(
            "continue_final_message cannot be honoured: the chat template leaves the last message "
            "out; send it without continue_final_message",
            param="messages",
        )
    kept = text[place + 1 : place + 2] == " "
    return text[:place] if kept else text[:place].rstrip()


def _join(chat: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
    lines = [f"{message.get('role', '')}: {_text(message.get('content'))}" for message in chat]
    return "\n".join([*lines, "assistant:"] if add_generation_prompt else lines)


def _text(content: Any) -> str:
    if isinstance(content, (list, tuple)):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(text for text in texts if isinstance(text, str))
    return "" if content is None else str(content)


# ------------------------------------------------------------------------------ where it comes from


def find_template(
    model: Path,
    *,
    tokenizer_config: Path | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str | None:
    """The source of the chat template, or None if there is none.

    `model` is a folder or a GGUF file, `tokenizer_config` the file that the flag of this name gave,
    `metadata` the GGUF's. In order: the tokenizer configuration, `chat_template.jinja` beside the
    model, the GGUF key. Raises ModelFileError for a configuration that cannot be read.
    """
    folder = model if model.is_dir() else model.parent
    config_path = tokenizer_config
    if config_path is None and model.is_dir():
        config_path = model / "tokenizer_config.json"
    if config_path is not None and (config_path.is_file() or tokenizer_config is not None):
        source = template_in(read_json_object(config_path).get("chat_template"), config_path.name)
        if source is not None:
            return source
    sibling = folder / "chat_template.jinja"
    if model.is_dir() and sibling.is_file():
        return _read_text(sibling)
    source = (metadata or {}).get("tokenizer.chat_template")
    return source if isinstance(source, str) and source else None


def template_in(value: Any, name: str) -> str | None:
    """The template of a `chat_template` entry: a string, or a list of named ones where `default`
    wins, otherwise the first."""
    if value is None or isinstance(value, str):
        return value or None
    entries = value if isinstance(value, list) else []
    named: dict[str, str] = {
        entry["name"]: entry["template"]
        for entry in entries
        if isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("template"), str)
    }
    if len(named) != len(entries) or not named:
        raise ModelFileError(
            f"{name}: chat_template must be a string or a list of objects with name and template"
        )
    first: str = next(iter(named.values()))
    return named.get("default", first)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path.name} cannot be read: {error}") from None
