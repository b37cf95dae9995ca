"""Merges that follow from an order of tokens, against a slow twin that looks at every part."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.text import merges
from octavo.text.merges import check_lengths, merges_in_order

LETTERS = st.text(st.sampled_from("ab▁é😊"), max_size=6)


def slow_twin(tokens: Sequence[str], numbers: Sequence[int]) -> list[tuple[str, str]]:
    known = dict(zip(tokens, numbers, strict=True))
    found = []
    for token in tokens:
        parts = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [pair for pair in parts if pair[0] in known and pair[1] in known]
        found += sorted(pairs, key=lambda pair: (known[pair[0]], known[pair[1]]))
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(LETTERS, unique=True, max_size=30), st.integers(1, 60), st.randoms())
def test_equals_the_slow_twin(tokens: list[str], chunk: int, random: object) -> None:
    numbers = list(range(len(tokens)))
    random.shuffle(numbers)  # type: ignore[attr-defined]
    tokens = [token for token in tokens if token]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merges, "CHUNK_BYTES", chunk)
        assert merges_in_order(tokens, numbers[: len(tokens)]) == slow_twin(
            tokens, numbers[: len(tokens)]
        )


def test_hashes_that_meet_do_not_count() -> None:
    """Modulo a power of two, such sums of two texts can be the same for any base."""
    even, odd = "a", "b"
    for _ in range(11):
        even, odd = even + odd, odd + even
    tokens = [even + "x", even, odd, "x"]
    found = merges_in_order(tokens, range(4))
    assert set(found) <= {(even, "x"), (odd, "x")}
    assert (odd, "x") not in found


def test_long_vocabularies_are_refused() -> None:
    check_lengths(["a" * 512] * 1000)
    with pytest.raises(ModelFileError, match="long"):
        check_lengths(["a" * 40_000])
