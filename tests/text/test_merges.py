"""Merges that follow from an order of tokens: texts come out as SentencePiece and tiktoken say."""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from octavo import _native
from octavo.errors import ModelFileError
from octavo.text.merges import check_lengths, merges_in_order

LETTERS = "ab▁é😊"
TOKENS = st.lists(st.text(st.sampled_from(LETTERS), min_size=2, max_size=6), max_size=30)


def slow_twin(tokens: Sequence[str], text: str) -> list[str]:
    """The rule as it is written: the pair that makes the first token, the leftmost of equals."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    parts = list(text)
    while True:
        pairs = [ranks.get(a + b, len(tokens)) for a, b in pairwise(parts)]
        if not pairs or min(pairs) == len(tokens):
            return parts
        i = pairs.index(min(pairs))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@settings(max_examples=300, deadline=None)
@given(TOKENS, st.lists(st.text(st.sampled_from(LETTERS), max_size=12), max_size=5))
def test_texts_equal_the_slow_twin(longer: list[str], texts: list[str]) -> None:
    tokens = [*LETTERS, *dict.fromkeys(longer)]
    merges = merges_in_order(tokens)
    whole = [left + right for left, right in merges]
    assert whole == [
        token for token in tokens[len(LETTERS) :] if slow_twin(tokens, token) == [token]
    ]
    numbers = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=numbers, merges=merges))
    for text in [*texts, *longer]:
        assert backend.encode(text).tokens == slow_twin(tokens, text)


def test_odd_vocabularies() -> None:
    assert merges_in_order([]) == []
    assert merges_in_order(["", "a", "b", "ab", "ab", "abc"]) == [("a", "b"), ("a", "b")]
    assert merges_in_order(["a", "\ud800", "a\ud800"])[0] == ("a", "\ud800")
    alike = ["a" * length for length in range(1, 600)]
    assert len(merges_in_order(alike)) == 598


@pytest.mark.parametrize("ends", [[2], [1, 0, 3], [1, 4], [-1, 3], []])
def test_ends_that_do_not_divide_the_text(ends: list[int]) -> None:
    text = np.frombuffer(b"abc", np.uint8)
    splits = np.zeros(len(ends), np.int32)
    with pytest.raises(ValueError, match="ends"):
        _native.token_splits(text, np.array(ends, np.int64), splits)
    with pytest.raises(ValueError, match="ends"):
        _native.token_splits(text, np.array([3], np.int64), np.zeros(2, np.int32))


def test_threads_change_nothing() -> None:
    letters = "abcdefghijkl"
    tokens = [*letters, *map("".join, product(letters, repeat=2))]
    tokens += map("".join, product(letters, repeat=4))
    text = np.frombuffer("".join(tokens).encode(), np.uint8)
    ends = np.cumsum([len(token) for token in tokens])
    found = []
    for threads in (0, 1, 4, 1000):
        splits = np.full(len(tokens), -1, np.int32)
        _native.token_splits(text, ends, splits, threads)
        found.append(splits.tolist())
    assert found[1:] == found[:-1]
    assert set(found[0]) == {0, 1, 2}
    with pytest.raises(TypeError):
        _native.token_splits(text, ends, np.zeros(len(tokens), np.int32), -1)


STARVED = """
import resource
import numpy as np
from octavo import _native

first, others = 1 << 24, 1 << 15  # one thread meets the long token, the others the many
text = np.frombuffer(b"a" * (first + others), np.uint8)
ends = first + np.arange(others + 1)
splits = np.zeros(others + 1, np.int32)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    _native.token_splits(text, ends, splits, 4)
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer ends at a lack of memory"
)
def test_a_thread_without_memory() -> None:
    """It does not end the process, whichever thread it is."""
    done = subprocess.run([sys.executable, "-c", STARVED], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("refused\n", "", 0)


def test_pairs_of_what_is_no_vocabulary() -> None:
    assert _native.token_pairs(["abc", "é", ""], np.array([1, 9, 0], np.int32)) == [
        ("a", "bc"),
        ("é", ""),
    ]
    with pytest.raises(ValueError, match="one split"):
        _native.token_pairs(["a"], np.zeros(2, np.int32))
    with pytest.raises(TypeError):
        _native.token_pairs([b"ab"], np.ones(1, np.int32))


def test_large_vocabularies_are_split_by_many_threads() -> None:
    letters = [chr(0x4E00 + i) for i in range(200)]
    tokens = letters + [a + b for a in letters for b in letters]
    assert merges_in_order(tokens) == [(token[0], token[1]) for token in tokens[200:]]


def test_long_vocabularies_are_refused() -> None:
    check_lengths(["a" * 512] * 1000)
    with pytest.raises(ModelFileError, match="long"):
        check_lengths(["a" * 40_000])
