"""From the way a vocabulary spells a token (`Ġhello`, `▁hello`, `##lo`, `<0x0A>`) to its bytes.

The vocabulary's decoder, as the `tokenizers` library writes it in JSON, tells which way it is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "▁"  # of SentencePiece


@cache
def byte_letters() -> tuple[str, ...]:
    """The printable letter that stands for each byte in byte-level vocabularies (GPT-2)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte) if byte in printable else chr(next(others)) for byte in range(256))


@cache
def _letter_bytes() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(byte_letters())}


class Spelling:
    """How the tokens of one vocabulary are spelled. `strips_space`: a decoded text loses the space
    before its first word, which encoding had added.
    """

    def __init__(self, decoder: Mapping[str, Any] | None) -> None:
        steps = list(_steps(decoder))
        kinds = {step.get("type") for step in steps}
        self._byte_level = "ByteLevel" in kinds
        self._byte_fallback = "ByteFallback" in kinds
        self._replaced: list[tuple[str, str]] = []
        self._word_pieces: str | None = None
        self._suffix = ""
        self.strips_space = False
        for step in steps:
            self._read(step)

    def _read(self, step: Mapping[str, Any]) -> None:
        kind = step.get("type")
        if kind == "Metaspace":
            self._replaced.append((step.get("replacement") or SPACE_MARK, " "))
            self.strips_space |= step.get("prepend_scheme", "always") != "never"
        elif kind == "Replace" and isinstance(step.get("pattern"), Mapping):
            pattern = step["pattern"].get("String")
            if pattern:
                self._replaced.append((pattern, step.get("content", "")))
        elif kind == "Strip":
            self.strips_space |= step.get("content") == " " and step.get("start", 0) > 0
        elif kind == "WordPiece":
            self._word_pieces = step.get("prefix", "##")
            self.strips_space = True
        elif kind == "BPEDecoder":
            self._suffix = step.get("suffix", "</w>")

    def longest(self, tokens: Iterable[str]) -> int:
        """An upper bound of the bytes of these tokens, found faster than their bytes are."""
        lengths = map(len, tokens if self._byte_level else map(str.encode, tokens))
        return 1 + max(lengths, default=0)

    def added(self, content: str) -> bytes:
        """The bytes of an added token that is no control token: spaces may be written as a mark."""
        for old, new in self._replaced:
            content = content.replace(old, new)
        return content.encode("utf-8", "replace")

    def bytes_of(self, token: str) -> bytes:
        """The bytes that an ordinary token (no added one) adds to a text."""
        if self._byte_level:
            letters = _letter_bytes()
            try:
                return bytes([letters[letter] for letter in token])
            except KeyError:
                return token.encode("utf-8", "replace")
        if self._byte_fallback and (byte := BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        if self._word_pieces is not None:
            word = token.removeprefix(self._word_pieces)
            token = word if len(word) < len(token) else " " + token
        if self._suffix and token.endswith(self._suffix):
            token = token.removesuffix(self._suffix) + " "
        for old, new in self._replaced:
            token = token.replace(old, new)
        return token.encode("utf-8", "replace")


def _steps(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if decoder is None:
        return
    if decoder.get("type") == "Sequence":
        for step in decoder.get("decoders", ()):
            yield from _steps(step)
    else:
        yield decoder
