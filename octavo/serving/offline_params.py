"""What callers of the offline API may ask for: the request's own fields, checked by its rules.

The types are checked here, as the HTTP schema does there; the rest is `serving/params.py` for both.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec

from octavo.errors import InvalidRequest
from octavo.serving.params import NOT_BUILT


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How answers are chosen and when they end; None: the default of the HTTP API.

    The names and the meanings are the request's (docs/api.md), except: `logprobs` is the number of
    alternatives in chats too, and `logit_bias` takes token ids as numbers as well.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    logit_bias: dict[int | str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    priority: int | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None


Params = SamplingParams | Mapping[str, Any]
Message = Mapping[str, Any]

NAMES = tuple(member.name for member in fields(SamplingParams))


class RequestFields(SimpleNamespace):
    """The fields of a request; those that nobody named are not given."""

    def __getattr__(self, name: str) -> None:
        return None


def request_fields(params: Params | None, **further: object) -> Any:
    """An object with all fields of a request, as the readers of HTTP bodies take it.

    Raises InvalidRequest for a name or a type that is wrong; ranges are checked by its reader.
    """
    values = _given(params)
    checked = _converted(values, SamplingParams, "")
    read = {name: getattr(checked, name) for name in NAMES}
    if checked.logit_bias is not None:
        read["logit_bias"] = _text_keys(checked.logit_bias)
    return RequestFields(**(read | further))


def _given(params: Params | None) -> dict[str, Any]:
    if isinstance(params, SamplingParams):
        return {name: getattr(params, name) for name in NAMES}
    if not isinstance(params, Mapping | None):
        raise InvalidRequest("params must be a SamplingParams or a dict of its fields")
    values = dict(params or {})
    for name in values:
        if name in NOT_BUILT:
            raise InvalidRequest(f"{name} is not supported yet; leave it out", param=name)
        if name not in NAMES:
            raise InvalidRequest(
                f"params has the unknown field {name!r}; known: {', '.join(NAMES)}", param=str(name)
            )
    return values


def _text_keys(bias: Mapping[int | str, float]) -> dict[str, float]:
    """As JSON has it: keys are text, numbers are finite."""
    for key, value in bias.items():
        if not math.isfinite(value):
            raise InvalidRequest(
                f"logit_bias.{key} is {value}; allowed: -100 to 100", param="logit_bias"
            )
    return {str(key): value for key, value in bias.items()}


def _converted(value: object, shape: Any, path: str) -> Any:
    """The value, if it has this shape. Raises InvalidRequest that names the field."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        # `$.stop[0]` is told as `stop.0`, as HTTP has it; of a dict's key it is `key in $.stop`.
        inner = where.rstrip("`").rpartition("$")[2]
        field = re.sub(r"\[([^]]*)\]", r".\1", path + inner).lstrip(".")
        raise InvalidRequest(
            f"{field or 'params'}: {what[:1].lower()}{what[1:]}", param=field or None
        ) from None


# ------------------------------------------------------------------------- prompts and messages


def prompt_list(given: object) -> list[str | list[int]]:
    """One prompt or several, each text or token ids. Raises InvalidRequest naming the wrong one."""
    if isinstance(given, str) or _are_ids(given):
        given = [given]
    if not isinstance(given, Sequence) or not given:
        raise InvalidRequest(
            "prompts must be a text, a list of token ids, or a list of either, not empty",
            param="prompts",
        )
    prompts: list[str | list[int]] = []
    for index, prompt in enumerate(given):
        if isinstance(prompt, str):
            prompts.append(prompt)
        elif _are_ids(prompt):
            prompts.append(list(prompt))
        else:
            raise InvalidRequest(
                f"prompts.{index} must be a text or a list of token ids, not empty",
                param=f"prompts.{index}",
            )
    return prompts


def _are_ids(given: object) -> bool:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str | bytes)
        and len(given) > 0
        and all(isinstance(item, int) and not isinstance(item, bool) for item in given)
    )


class _Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    parameters: dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: dict[str, Any]


class _Message(msgspec.Struct):
    role: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None


class _Tool(msgspec.Struct):
    type: Literal["function"]
    function: _Function


def conversation_list(given: object) -> list[list[Message]]:
    """One conversation (a list of messages) or several. Raises InvalidRequest naming the field."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
        raise InvalidRequest(
            "messages must be a list of messages, or a list of such lists, not empty",
            param="messages",
        )
    one = isinstance(given[0], Mapping)
    for index, messages in enumerate([given] if one else given):
        path = "messages" if one else f"messages.{index}"
        _converted(messages, Annotated[list[_Message], msgspec.Meta(min_length=1)], path)
    return [list(messages) for messages in ([given] if one else given)]


def tool_list(given: object) -> list[Mapping[str, Any]] | None:
    """Tools of a chat, as they were given. Raises InvalidRequest naming the field."""
    if given is None:
        return None
    _converted(given, Annotated[list[_Tool], msgspec.Meta(min_length=1)], "tools")
    return list(given)  # type: ignore[call-overload, no-any-return]
