"""Reads untrusted model settings (config.json, GGUF metadata) and names the key that is wrong."""

import math
from collections.abc import Mapping
from typing import Any

from octavo.errors import ModelFileError
from octavo.weights.mapped import shown_value


class Fields:
    """A mapping of settings. Every reader raises ModelFileError naming the key.

    `default` None makes a setting required; a null counts as absent.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = values
        self.prefix = prefix  # written before each key in messages

    @classmethod
    def within(cls, values: Mapping[str, Any], prefix: str) -> "Fields":
        """The settings whose keys begin with `prefix`, by the rest of their keys."""
        inner = {key.removeprefix(prefix): v for key, v in values.items() if key.startswith(prefix)}
        return cls(inner, prefix)

    def has(self, key: str) -> bool:
        """Present and not null."""
        return self._values.get(key) is not None

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int) -> int:
        """A whole number, low <= it <= high."""
        value = self._get(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key, f"a whole number from {low} to {high}")
        return int(value)

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        """A finite number, low <= it <= high."""
        value = self._get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
            or not math.isfinite(value)
        ):
            raise self.wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return bool(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.wrong(key, "a list of strings")
        return tuple(value)

    def mapping(self, key: str) -> "Fields":
        """An object, empty when absent; its keys are told as `key.name`."""
        value = self._get(key, {})
        if not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        return Fields(value, f"{self.prefix}{key}.")

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """A token id or a list of them; empty when absent."""
        value = self._get(key, ())
        ids = value if isinstance(value, list | tuple) else [value]
        if not all(type(i) is int and 0 <= i < vocab_size for i in ids):
            raise self.wrong(key, f"a token id, or a list of them, below the {vocab_size} tokens")
        return tuple(dict.fromkeys(ids))

    def wrong(self, key: str, allowed: str) -> ModelFileError:
        """To raise: this key's value is not what is allowed."""
        name = self.prefix + key
        value = self._values.get(key)
        if value is None:
            return ModelFileError(f"{name} is missing; it must be {allowed}")
        return ModelFileError(f"{name} is {shown_value(value)}; it must be {allowed}")

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        return default if value is None else value
