"""Precompiled normalisers: a good one works, and no broken one reaches the library."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from octavo.errors import ModelFileError
from octavo.testing.charsmap import make_charsmap
from octavo.text.charsmap import check_charsmap

GOOD = make_charsmap({"A": "a", "é": "e", "ab": "c", "\n": " "})


def test_a_good_one() -> None:
    check_charsmap(GOOD)
    check_charsmap(b"")
    normalizer = normalizers.Precompiled(GOOD)
    assert normalizer.normalize_str("Aéx\n") == "aex "


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\0\0\0\0",
        GOOD[:100],
        (1 << 31).to_bytes(4, "little") + GOOD[4:],
        GOOD[:7] + b"\x80" + GOOD[8:],  # a root that says it is a value
        GOOD[:-1],  # the last replacement has no end
        GOOD + b"\xff\0",
    ],
)
def test_refused(data: bytes) -> None:
    with pytest.raises(ModelFileError, match="charsmap"):
        check_charsmap(data)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(4, len(GOOD) - 1), st.integers(0, 255)), max_size=8))
def test_what_passes_does_not_crash_the_library(changes: list[tuple[int, int]]) -> None:
    data = np.frombuffer(GOOD, np.uint8).copy()
    for place, value in changes:
        data[place] = value
    try:
        check_charsmap(data.tobytes())
    except ModelFileError:
        return
    normalizer = normalizers.Precompiled(data.tobytes())
    for byte in range(1, 0x250):
        normalizer.normalize_str(chr(byte) + "bA\n")
