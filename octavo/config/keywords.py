"""From keyword arguments to a checked `Config`, for programs that load a model without a server."""

import os
from collections.abc import Mapping
from typing import Any

from octavo.config.config import GROUPS, Config
from octavo.config.fields import Flag, flags_of
from octavo.config.options import DEFAULT_MODEL
from octavo.config.parser import checked_config
from octavo.errors import ConfigError

KEYWORD_GROUPS = ("model", "cache", "scheduler", "transfer", "speculative", "media")
FURTHER_KEYWORDS = ("max_logprobs",)  # the only one of the server's that is the model's as well
# What a program without a server has: no queue that turns prompts away, no listener, no log lines
# and no counters of requests.
FIXED = {
    "max_queue": 0,
    "host": "127.0.0.1",
    "enable_log_requests": False,
    "enable_metrics": False,
}


def keyword_options() -> dict[str, tuple[Any, Flag]]:
    """Name of each option that may be given -> its default and what describes it."""
    return {
        member.name: (member.default, flag)
        for name, group in GROUPS.items()
        for member, flag in flags_of(group)
        if (name in KEYWORD_GROUPS or member.name in FURTHER_KEYWORDS) and member.name not in FIXED
    }


def config_from_keywords(
    options: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> Config:
    """The checked configuration of options by field name, and of the environment's variables.

    Raises ConfigError for a name that is no option, and for values as `parse_args` does.
    """
    known = keyword_options()
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise ConfigError(f"{name} is no option here; known: {', '.join(known)}")
        values[name] = _value(name, value, *known[name])
    environ = os.environ if environ is None else environ
    # Variables of options that cannot be given here say nothing either.
    names = {flag.env for _, flag in known.values() if flag.env} | {"PYTHONHASHSEED"}
    heard = {name: text for name, text in environ.items() if name in names}
    return checked_config(values | FIXED, DEFAULT_MODEL, heard)


def _value(name: str, value: Any, default: Any, flag: Flag) -> Any:
    """The value as its flag would have it. Paths are taken for text."""
    if value is None and default is None:
        return None
    if flag.convert is None:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False, not {value!r}")
        return value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    takes_number = isinstance(default, int | float)
    if not isinstance(value, str) and not (is_number and takes_number):
        wanted = "a number" if takes_number else "text"
        raise ConfigError(f"{name} must be {wanted}, not {value!r}")
    try:
        return flag.convert(str(value))
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None
