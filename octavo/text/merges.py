"""The merges of vocabularies that only give their tokens an order: by SentencePiece's scores, or by
tiktoken's ranks.
"""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo import _native
from octavo.errors import ModelFileError

MAX_SQUARES = 1 << 30  # of all tokens' lengths; vocabularies of 262,144 tokens come to 2**25


def check_lengths(tokens: Sequence[str]) -> None:
    """Raises ModelFileError where looking at every part of every token would take long."""
    lengths = _lengths(tokens)
    if np.dot(lengths, lengths) > MAX_SQUARES:
        raise ModelFileError("the vocabulary has too many or too long tokens for one of text")


def merges_in_order(tokens: list[str]) -> list[tuple[str, str]]:
    """The last merge of each of these tokens that has one: of two neighbours the pair is merged
    that makes the first token in this order, of equals the leftmost.

    A token has one last merge in whatever text: see csrc/bindings/token_splits.cpp.
    """
    # Faster than to encode each token: the text of all, and where its characters begin.
    text = np.frombuffer("".join(tokens).encode("utf-8", "replace"), np.uint8)
    starts = np.append(np.flatnonzero((text & 0xC0) != 0x80), len(text))
    ends = starts[np.cumsum(_lengths(tokens))]
    splits = np.zeros(len(tokens), np.int32)
    _native.token_splits(text, ends, splits, _threads())
    pairs: list[tuple[str, str]] = _native.token_pairs(tokens, splits)
    return pairs


def _threads() -> int:
    """A container may grant fewer cores than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS


def _lengths(tokens: Sequence[str]) -> NDArray[np.int64]:
    """In characters."""
    return np.fromiter(map(len, tokens), np.int64, len(tokens))
