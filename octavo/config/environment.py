"""Environment variables, read once into option values."""

from collections.abc import Collection, Mapping
from typing import Any

from octavo.config.config import GROUPS
from octavo.config.fields import flags_of
from octavo.errors import ConfigError

TRUE_WORDS = ("1", "true", "TRUE", "on")  # everything else is off


def environment_values(environ: Mapping[str, str], given: Collection[str]) -> dict[str, Any]:
    """Values of options by field name that the environment sets, beside those given as flags.

    Raises ConfigError naming the variable whose value is wrong.
    """
    values: dict[str, Any] = {}
    for group in GROUPS.values():
        for member, flag in flags_of(group):
            text = environ.get(flag.env) if flag.env else None
            if text is None or (member.name in given and not flag.env_wins):
                continue
            if flag.convert is None:
                values[member.name] = text in TRUE_WORDS
            elif text:
                values[member.name] = _converted(flag.env, text, flag.convert)
    _resolve_hash_seed(environ, values)
    return values


def _converted(variable: str, text: str, convert: Any) -> Any:
    try:
        return convert(text)
    except ValueError as error:
        raise ConfigError(f"environment variable {variable} {error}") from None


def _resolve_hash_seed(environ: Mapping[str, str], values: dict[str, Any]) -> None:
    """Without its variable Python's own hash seed is taken. `random` is the engine's to resolve."""
    seed = values.get("prefix_caching_hash_seed") or environ.get("PYTHONHASHSEED")
    if seed:
        values["prefix_caching_hash_seed"] = seed
