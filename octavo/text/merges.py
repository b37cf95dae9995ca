"""The merges of vocabularies that only give their tokens an order: by SentencePiece's scores, or by
tiktoken's ranks.

Every token is cut at every place, and both parts are looked up: millions of parts, so by hashes, a
megabyte of tokens at a time. What the hashes find is compared before it counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError

MAX_SQUARES = 1 << 30  # of all tokens' lengths; vocabularies of 262,144 tokens come to 2**25
CHUNK_BYTES = 1 << 20
# A part's hash is the sum of its bytes times powers of an odd number, modulo 2**64.
BASE = 0x9E3779B97F4A7C15
INVERSE = pow(BASE, -1, 1 << 64)

Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]


def check_lengths(tokens: Sequence[str]) -> None:
    """Raises ModelFileError where looking at every part of every token would take long."""
    if sum([len(token) ** 2 for token in tokens]) > MAX_SQUARES:
        raise ModelFileError("the vocabulary has too many or too long tokens for one of text")


def merges_in_order(tokens: Sequence[str], numbers: Sequence[int]) -> list[tuple[str, str]]:
    """Every way to put one of the `tokens` together from two others, the first token's ways first.

    `numbers`: their ids, which order the ways of one token. Tokens are distinct. The library merges
    the pair that comes first in this list, SentencePiece and tiktoken the pair whose whole comes
    first in their order: the same, but where two ways to make one token overlap.
    """
    table = _Table(np.concatenate([chunk.whole() for chunk in _chunks(tokens)] or [_NONE]))
    ids = np.array(numbers, np.int64)
    merges: list[tuple[str, str]] = []
    for chunk in _chunks(tokens):
        found = chunk.cuts(table)
        order = np.lexsort((ids[found.right], ids[found.left], found.whole))
        rows = (part[order].tolist() for part in (found.whole, found.left, found.right))
        merges += [
            (left, right)
            for whole, i, k in zip(*rows, strict=True)
            if (left := tokens[i]) + (right := tokens[k]) == tokens[whole]
        ]
    return merges


_NONE: Hashes = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Index of a token and of its two parts, for each way."""

    whole: Indices
    left: Indices
    right: Indices


class _Table:
    """Looks up hashes of whole tokens."""

    BITS = 22

    def __init__(self, hashes: Hashes) -> None:
        self._order = np.argsort(hashes)
        self._sorted = hashes[self._order]
        self._maybe = np.zeros(1 << self.BITS, bool)  # most parts are no token: cheaply seen
        self._maybe[self._slots(hashes)] = True

    def _slots(self, hashes: Hashes) -> Hashes:
        return hashes >> np.uint64(64 - self.BITS)

    def find(self, hashes: Hashes) -> tuple[Indices, Indices]:
        """Which of the hashes are of tokens, and of which."""
        candidates = np.flatnonzero(self._maybe[self._slots(hashes)])
        wanted = hashes[candidates]
        places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        same = self._sorted[places] == wanted
        return candidates[same], self._order[places[same]]


class _Chunk:
    """Some tokens in a row, the first of them number `first`."""

    def __init__(self, tokens: Sequence[str], first: int) -> None:
        encoded = [token.encode("utf-8", "surrogatepass") for token in tokens]
        self._first = first
        self._ends = np.cumsum(np.array([len(token) for token in encoded], np.int64))
        self._starts = np.concatenate([[0], self._ends[:-1]])
        self._bytes = np.frombuffer(b"".join(encoded), np.uint8)
        count = len(self._bytes)
        powers = np.multiply.accumulate(np.full(count, BASE, np.uint64))
        self._inverses = np.multiply.accumulate(np.full(count + 1, INVERSE, np.uint64))
        terms = (self._bytes.astype(np.uint64) + np.uint64(1)) * powers
        self._sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])

    def _hashes(self, starts: Indices, ends: Indices) -> Hashes:
        return (self._sums[ends] - self._sums[starts]) * self._inverses[starts]

    def whole(self) -> Hashes:
        return self._hashes(self._starts, self._ends)

    def cuts(self, table: _Table) -> _Cuts:
        """Every place inside a token, but inside no character, whose two sides are tokens."""
        inside = self._bytes >> 6 != 0b10
        inside[self._starts[self._starts < len(inside)]] = False
        places = np.flatnonzero(inside)
        owners = np.repeat(np.arange(len(self._ends)), self._ends - self._starts)[places]
        kept, left = table.find(self._hashes(self._starts[owners], places))
        places, owners = places[kept], owners[kept]
        kept, right = table.find(self._hashes(places, self._ends[owners]))
        return _Cuts(owners[kept] + self._first, left[kept], right)


def _chunks(tokens: Sequence[str]) -> Iterator[_Chunk]:
    start, size = 0, 0
    for number, token in enumerate(tokens):
        size += 4 * len(token)  # at most, in UTF-8
        if size > CHUNK_BYTES:
            yield _Chunk(tokens[start : number + 1], start)
            start, size = number + 1, 0
    if start < len(tokens):
        yield _Chunk(tokens[start:], start)
