"""The strings of a header's arrays: the C++ reader and the Python loop agree, faults included."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import _native
from octavo.errors import ModelFileError
from octavo.weights.gguf_metadata import Cursor
from octavo.weights.mapped import MappedFile


def stored(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def outcome(read, cursor, count):
    """(strings, position) or the error's words."""
    try:
        return list(read(count, "'words'")), cursor.position
    except ModelFileError as error:
        return str(error)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("header") / "header"


@given(
    strings=st.lists(st.text(max_size=9) | st.binary(max_size=3), max_size=6),
    junk=st.binary(max_size=12),
    cut=st.integers(0, 4),
    more=st.integers(0, 2),
)
def test_both_readers_agree(path, strings, junk, cut, more):
    data = junk + b"".join(map(stored, strings)) + b"tail"
    path.write_bytes(data[: max(1, len(data) - cut)])
    file = MappedFile(path)
    start = min(len(junk), file.size)
    found = _native.read_strings(file.bytes, start, file.size, len(strings) + more)
    results = []
    for name in ("_strings", "_strings_one_by_one"):
        cursor = Cursor(file)
        cursor.position = start
        results.append(outcome(getattr(cursor, name), cursor, len(strings) + more))
    assert results[0] == results[1]
    assert (found is None) == isinstance(results[1], str), "the fast reader gave up without need"


@given(data=st.binary(min_size=1, max_size=40), count=st.integers(0, 4))
def test_nothing_outside_the_data_is_read(data, count):
    """An array of exactly its size: the sanitizer sees a byte too much."""
    array = np.frombuffer(bytearray(data), np.uint8).copy()
    found = _native.read_strings(array, 0, len(data), count)
    assert found is None or found[1] <= len(data)


def test_a_length_beyond_the_end_is_seen_whatever_its_size(path):
    for length in (1, 2**31, 2**63 - 1, 2**63, 2**64 - 1):
        path.write_bytes(struct.pack("<Q", length))
        file = MappedFile(path)
        assert _native.read_strings(file.bytes, 0, file.size, 1) is None
        with pytest.raises(ModelFileError, match="a string of 'words' of length"):
            Cursor(file)._strings(1, "'words'")


def test_bounds_outside_the_data_are_refused(path):
    path.write_bytes(stored("word"))
    file = MappedFile(path)
    assert _native.read_strings(file.bytes, 0, file.size, 1) == (["word"], file.size)
    for position, end, count in [(-1, 12, 1), (0, 13, 1), (9, 8, 0), (0, 12, -1), (0, 12, 2**62)]:
        assert _native.read_strings(file.bytes, position, end, count) is None
