"""What a GGUF file says about its vocabulary (`tokenizer.ggml.*`), checked before it is used.

Source: the GGUF specification's list of standardised keys, and llama.cpp's further ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from octavo.errors import ModelFileError
from octavo.weights.mapped import shown_value

PREFIX = "tokenizer.ggml."
_NAMED = (  # token of tokenizer_config.json -> keys of GGUF; "seperator" is the specification's
    ("bos_token", ("bos_token_id",)),
    ("eos_token", ("eos_token_id",)),
    ("unk_token", ("unknown_token_id",)),
    ("pad_token", ("padding_token_id",)),
    ("cls_token", ("cls_token_id",)),
    ("sep_token", ("seperator_token_id", "separator_token_id")),
    ("mask_token", ("mask_token_id",)),
)


class TokenType(IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(slots=True)
class Vocabulary:
    """tokens, types: by id, as long as each other. config: the same facts as tokenizer_config.json
    would hold; the builders add what holds for their kind when the file is silent. A builder whose
    library spells tokens in another way rewrites `tokens`.
    """

    metadata: Mapping[str, Any]
    tokens: list[str]
    types: list[int]
    config: dict[str, Any]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def array(self, key: str, kinds: tuple[str, ...]) -> list[Any] | None:
        """The array under `key`, whose elements are of one of the GGUF `kinds`."""
        return read_array(self.metadata, key, kinds)

    def strings(self, key: str) -> list[str]:
        return read_strings(self.metadata, key)

    def flag(self, key: str, default: bool) -> bool:
        return read_flag(self.metadata, key, default)

    def scores(self) -> list[float]:
        """One for each token."""
        scores = self.array("scores", ("F32", "F64"))
        if scores is None:
            raise ModelFileError(f"{PREFIX}scores is missing")
        return scores

    def numbers(self) -> dict[str, int]:
        """Token -> id. Of tokens that are spelled the same the first counts."""
        tokens = self.tokens
        numbers = dict(zip(tokens, range(len(tokens)), strict=True))
        if len(numbers) == len(tokens):
            return numbers
        return dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))

    def default(self, name: str, value: Any) -> None:
        """What holds when the file does not say."""
        if self.config.get(name) is None:
            self.config[name] = value


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Raises ModelFileError naming the key that is missing, of another kind or too short."""
    tokens = read_strings(metadata, "tokens")
    if not tokens:
        raise ModelFileError(f"{PREFIX}tokens is empty")
    types = _token_types(metadata, len(tokens))
    config = _config(metadata, tokens)
    scores = read_array(metadata, "scores", ("F32", "F64"))
    if scores is not None and len(scores) != len(tokens):
        raise ModelFileError(f"{PREFIX}scores has {len(scores)} entries for {len(tokens)} tokens")
    return Vocabulary(metadata, tokens, types, config)


def read_array(metadata: Mapping[str, Any], key: str, kinds: tuple[str, ...]) -> list[Any] | None:
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    kind = getattr(getattr(value, "kind", None), "name", None)
    if not isinstance(value, list) or (kind is not None and kind not in kinds):
        raise ModelFileError(
            f"{PREFIX}{key} must be an array of {' or '.join(kinds)}, not of {kind or 'one value'}"
        )
    return value


def read_strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    value = read_array(metadata, key, ("STRING",))
    if value is None:
        raise ModelFileError(f"{PREFIX}{key} is missing")
    if not all(isinstance(item, str) for item in value):
        raise ModelFileError(f"{PREFIX}{key} must be an array of strings")
    return value


def read_flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    value = metadata.get(PREFIX + key, default)
    if type(value) is not bool:
        raise ModelFileError(f"{PREFIX}{key} must be true or false")
    return value


def _token_types(metadata: Mapping[str, Any], count: int) -> list[int]:
    types = read_array(metadata, "token_type", ("I32", "U32"))
    if types is None:
        return [TokenType.NORMAL] * count
    if len(types) != count:
        raise ModelFileError(f"{PREFIX}token_type has {len(types)} entries for {count} tokens")
    return types


def _config(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, keys in _NAMED:
        for key in keys:
            number = metadata.get(PREFIX + key)
            if number is None:
                continue
            if type(number) is not int or not 0 <= number < len(tokens):
                raise ModelFileError(
                    f"{PREFIX}{key} is {shown_value(number)}, but there are {len(tokens)} tokens"
                )
            config[name] = tokens[number]
    for end in ("bos", "eos"):
        value = metadata.get(f"{PREFIX}add_{end}_token")
        if value is not None and type(value) is not bool:
            raise ModelFileError(f"{PREFIX}add_{end}_token must be true or false")
        config[f"add_{end}_token"] = value
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    config["model_max_length"] = length if type(length) is int else None
    return config
