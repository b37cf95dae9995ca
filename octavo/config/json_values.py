"""Reading flags whose value is JSON: every refusal names the flag and the key at fault."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from octavo.errors import ConfigError


def json_object(flag: str, text: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises ConfigError for anything else, a repeated key included."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{flag}: the key {twice!r} is given twice")
        return made

    def no_constant(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{flag} must be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{flag} must be a JSON object, not {kind_of(value)}")
    return value


def check_keys(
    flag: str, value: Mapping[str, Any], allowed: Iterable[str], foreign: Iterable[str] = ()
) -> None:
    """Refuse keys outside `allowed`; those in `foreign` (known to vLLM) in other words."""
    names = sorted(allowed)
    for key in value:
        if key in names:
            continue
        if key in set(foreign):
            reason = f"the key {key!r} is vLLM's and has no meaning in this server"
        else:
            reason = f"unknown key {key!r}"
        raise ConfigError(f"{flag}: {reason}; allowed: {', '.join(names)}")


def text_value(flag: str, value: Mapping[str, Any], key: str) -> str | None:
    """The text at `key`, None when it is absent."""
    if key not in value:
        return None
    found = value[key]
    if not isinstance(found, str) or not found:
        raise ConfigError(f"{flag}: {key!r} must be a text, not {kind_of(found)}")
    return found


def choice_value(
    flag: str, value: Mapping[str, Any], key: str, allowed: Iterable[str]
) -> str | None:
    """The word at `key`, one of `allowed`; None when it is absent."""
    found = text_value(flag, value, key)
    names = list(allowed)
    if found is not None and found not in names:
        raise ConfigError(f"{flag}: {key!r} must be one of {', '.join(names)}, not {found!r}")
    return found


def count_value(
    flag: str, value: Mapping[str, Any], key: str, minimum: int, maximum: int | None = None
) -> int | None:
    """The whole number at `key`, None when it is absent."""
    if key not in value:
        return None
    found = value[key]
    wanted = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
    if not isinstance(found, int) or isinstance(found, bool):
        raise ConfigError(f"{flag}: {key!r} must be a whole number, not {kind_of(found)}")
    if found < minimum or (maximum is not None and found > maximum):
        raise ConfigError(f"{flag}: {key!r} must be {wanted}, not {found}")
    return found


def kind_of(value: Any) -> str:
    """What a JSON value is, in JSON's words, with the value where it is short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a list" if isinstance(value, list) else "an object"
