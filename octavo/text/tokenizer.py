"""What the rest of Octavo asks of a tokenizer, and the one built on the `tokenizers` library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A chat as the template wrote it.

    `marked` may hold break marks: the character `mark` stands inside every control token that came
    from a user's string, so that only the template's own control tokens match. Empty `mark`: none.
    """

    marked: str
    mark: str = ""

    @property
    def text(self) -> str:
        """The prompt without marks."""
        return self.marked.replace(self.mark, "") if self.mark else self.marked


class Tokenizer(Protocol):
    """Text to ids and ids to bytes. Thread-safe; `encode` may release the GIL."""

    vocab_size: int  # ids lie in 0 <= id < vocab_size
    bos_token: str | None
    eos_token: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    special_ids: frozenset[int]  # control tokens: added and marked special
    special_tokens: Mapping[str, int]  # their texts
    max_token_bytes: int  # the longest token

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Parse in full: control tokens in the text become their ids, as in transformers."""
        ...

    def encode_rendered(self, prompt: RenderedPrompt, add_special_tokens: bool = False) -> list[int]:
        """As `encode`, but control tokens that carry a break mark are ordinary text."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that this token adds to a text (UTF-8, perhaps a part of a character)."""
        ...

    def token_str(self, token_id: int) -> str:
        """The token as the vocabulary spells it (`Ġhello`), for /tokenize."""
        ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The bytes of all tokens, as text; bytes that are no UTF-8 become U+FFFD."""
        ...

    def info(self) -> dict[str, Any]:
        """What /tokenizer_info answers, JSON values only."""
        ...
