"""The merges of vocabularies that only give their tokens an order: by SentencePiece's scores, or by
tiktoken's ranks.
"""

import os
from collections.abc import Sequence

import numpy as np

from octavo import _native
from octavo.errors import ModelFileError

MAX_SQUARES = 1 << 30  # of all tokens' lengths; vocabularies of 262,144 tokens come to 2**25


def check_lengths(tokens: Sequence[str]) -> None:
    """Raises ModelFileError where looking at every part of every token would take long."""
    if sum([len(token) ** 2 for token in tokens]) > MAX_SQUARES:
        raise ModelFileError("the vocabulary has too many or too long tokens for one of text")


def merges_in_order(tokens: list[str]) -> list[tuple[str, str]]:
    """The last merge of each of these tokens that has one: of two neighbours the pair is merged
    that makes the first token in this order, of equals the leftmost.

    A token has one last merge in whatever text: see csrc/bindings/token_splits.cpp.
    """
    encoded = [token.encode("utf-8", "replace") for token in tokens]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    splits = np.zeros(len(tokens), np.int32)
    threads = len(os.sched_getaffinity(0))  # a container may grant fewer cores than there are
    _native.token_splits(np.frombuffer(b"".join(encoded), np.uint8), ends, splits, threads)
    pairs: list[tuple[str, str]] = _native.token_pairs(tokens, splits)
    return pairs
