"""Token ids to text as they come: whole characters, and the same text as decoding all at once."""

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenBytes(Protocol):
    """What is asked of a tokenizer here."""

    special_ids: frozenset[int]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that this token adds to a text."""
        ...


class Detokenizer:
    """One answer. What `feed` and `flush` return, joined, is the decoding of all bytes at once,
    with U+FFFD for what is no UTF-8; no character is returned that a later byte could still change.
    """

    def __init__(self, tokenizer: TokenBytes, skip_special_tokens: bool = True) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int]) -> str:
        """The characters that are complete with these tokens."""
        skipped, token_bytes = self._skipped, self._token_bytes
        return self._decoder.decode(
            b"".join(token_bytes(token) for token in token_ids if token not in skipped)
        )

    def flush(self) -> str:
        """The answer is over: a started character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)
