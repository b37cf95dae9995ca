"""Broken and hostile GGUF files: one line that names the file and the fault, little memory."""

import os
import struct
import tracemalloc

import pytest

from octavo.errors import ModelFileError
from octavo.testing.model_files import Pair, Row, gguf_bytes, gguf_string
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import ValueKind

K = ValueKind
ARCH = Pair("general.architecture", K.STRING, "llama")


def pairs(*more, **header):
    return gguf_bytes([ARCH, *more], **header)


def row(name="t", dims=(4,), type_number=0, offset=0, data=b"\0" * 64):
    return gguf_bytes([ARCH], [Row(name, dims, type_number, offset)], data)


def rows(*some, data=b"\0" * 128):
    return gguf_bytes([ARCH], some, data)


def array(kind, count, payload=b""):
    return Pair("a.b", K.ARRAY, struct.pack("<IQ", kind, count) + payload)


def nested(depth):
    one = struct.pack("<IQ", K.ARRAY, 1)
    return Pair("a.b", K.ARRAY, one * depth + struct.pack("<IQ", K.U8, 0))


def raw_key(key: bytes):
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    return header + struct.pack("<Q", len(key)) + key + struct.pack("<IB", K.U8, 1)


def cut_after(data: bytes, mark: bytes, more: int):
    return data[: data.index(mark) + len(mark) + more]


def alignment(kind, value):
    return pairs(Pair("general.alignment", kind, value))


CASES = {
    "empty": (b"", "empty"),
    "three bytes": (b"GGU", "ends within the magic"),
    "header cut": (b"GGUF\3\0\0\0\0", "ends within the tensor count"),
    "other magic": (gguf_bytes([], magic=b"GGML"), "not a GGUF file"),
    "version 0": (pairs(version=0), "version 0"),
    "version 1": (pairs(version=1), "version 1"),
    "version 99": (pairs(version=99), "version 99"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "tensor count": (pairs(tensor_count=2**60), "tensor count"),
    "tensor count -1": (pairs(tensor_count=2**64 - 1), "tensor count"),
    "one tensor too many": (row(data=b"")[:-40] + b"\xff", "tensor"),
    "metadata count": (pairs(pair_count=2**60), "metadata count"),
    "metadata count of one more": (pairs(pair_count=2), "metadata key 1"),
    "string past the end": (
        pairs(Pair("general.name", K.STRING, struct.pack("<Q", 2**63) + b"x" * 99)),
        "'general.name' of length 9223372036854775808",
    ),
    "string not UTF-8": (
        pairs(Pair("k", K.STRING, struct.pack("<Q", 1) + b"\xff")),
        "'k' is not UTF-8",
    ),
    "key past the end": (raw_key(b"k" * 5).replace(b"\5", b"\x7f", 1), "metadata key 0"),
    "key empty": (pairs(Pair("", K.U8, 1)), "metadata key 1 is empty"),
    "key not UTF-8": (raw_key(b"\xc3("), "metadata key 0 is not UTF-8"),
    "key twice": (pairs(Pair("a.b", K.U8, 1), Pair("a.b", K.U8, 2)), "'a.b' occurs twice"),
    "key breaks the line": (pairs(Pair("a\nb", 77, b"\0" * 8)), r"'a\nb' has the unknown value"),
    "value of unknown type": (pairs(Pair("a.b", 13, b"\0" * 8)), "unknown value type 13"),
    "bool of two": (pairs(Pair("a.b", K.BOOL, b"\2")), "neither 0 nor 1"),
    "array of bools": (pairs(array(K.BOOL, 2, b"\1\2")), "neither 0 nor 1"),
    "array of 2^40": (pairs(array(K.U8, 2**40)), "array 'a.b' of length"),
    "array of 2^64 - 1": (pairs(array(K.F64, 2**64 - 1)), "array 'a.b' of length"),
    "array of strings": (pairs(array(K.STRING, 2**50)), "array 'a.b' of length"),
    "string in an array": (
        pairs(array(K.STRING, 2, gguf_string("x") + struct.pack("<Q", 2**63))),
        "string of 'a.b' of length",
    ),
    "array cut within a length": (
        cut_after(pairs(array(K.STRING, 2, gguf_string("x" * 40))), b"x" * 40, 4),
        "within 'a.b'",
    ),
    "string in an array not UTF-8": (
        pairs(array(K.STRING, 1, struct.pack("<Q", 1) + b"\x80")),
        "string 0 of 'a.b' is not UTF-8",
    ),
    "array of unknown type": (pairs(array(99, 1, b"\0" * 8)), "unknown value type 99"),
    "nested five deep": (pairs(nested(4)), "nests arrays"),
    "nested": (pairs(nested(10_000)), "nests arrays"),
    "alignment 0": (alignment(K.U32, 0), "general.alignment"),
    "alignment 48": (alignment(K.U32, 48), "general.alignment"),
    "alignment of 2^63": (alignment(K.U64, 2**63), "general.alignment"),
    "alignment is text": (alignment(K.STRING, "32"), "general.alignment"),
    "alignment is a bool": (alignment(K.BOOL, True), "general.alignment"),
    "no dimensions": (row(dims=()), "'t' has 0 dimensions"),
    "five dimensions": (row(dims=(1,) * 5), "'t' has 5 dimensions"),
    "dimension of zero": (row(dims=(4, 0)), "dimension of zero"),
    "product overflows": (row(dims=(4, 2**62)), "too large"),
    "product wraps to little": (row(dims=(2**33, 2**31, 2)), "too large"),
    "huge": (row(dims=(2**40,)), "beyond the end"),
    "type unknown": (row(type_number=999), "unknown type 999"),
    "type removed": (row(type_number=4), "Q4_2"),
    "part blocks": (row(dims=(33, 2), type_number=2), "rows of 33"),
    "tensor without a name": (row(name=""), "name of tensor 0 is empty"),
    "tensor twice": (rows(Row("t", (4,), 0, 0), Row("t", (4,), 0, 32)), "'t' occurs twice"),
    "offset not aligned": (row(offset=8), "offset 8 of tensor 't' is not aligned"),
    "offset past the end": (row(offset=2**40), "'t' of shape [4] lies beyond the end"),
    "offset overflows": (row(offset=2**64 - 32), "'t' of shape [4] lies beyond the end"),
    "overlap": (rows(Row("u", (16,), 0, 0), Row("t", (4,), 0, 32)), "'u' and 't' overlap"),
    "same place": (rows(Row("u", (4,), 0, 0), Row("t", (4,), 0, 0)), "overlap"),
    "one byte short": (row(data=b"\0" * 15), "beyond the end"),
    "no data": (row(data=b""), "beyond the end"),
    "split count of -1": (pairs(Pair("split.count", K.I32, -1)), "split.count"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path, case):
    data, fault = CASES[case]
    path = tmp_path / "bad-model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as refused:
        read_gguf(path)
    message = str(refused.value)
    assert message.startswith("bad-model.gguf: ")
    assert fault in message
    assert message.isprintable()
    assert len(message) < 400
    assert str(tmp_path) not in message


def test_data_of_the_exact_size_is_enough(tmp_path):
    path = tmp_path / "good.gguf"
    path.write_bytes(row(data=b"\0" * 16))
    assert read_gguf(path).tensors["t"].shape == (4,)


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match=r"pipe\.gguf: is not a regular file"):
        read_gguf(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match=r"absent\.gguf: cannot be read"):
        read_gguf(tmp_path / "absent.gguf")


@pytest.mark.parametrize(
    ("pair", "fault"),
    [
        (array(K.U8, 5 << 20, bytes(5 << 20)), "array elements"),
        (array(K.STRING, 5 << 20, bytes(40 << 20)), "array elements"),
        (array(K.ARRAY, 1 << 20, struct.pack("<IQ", K.U8, 0) * (1 << 20)), "array elements"),
        (Pair("a.b", K.STRING, struct.pack("<Q", 70 << 20) + bytes(70 << 20)), "64 MiB"),
    ],
    ids=["bytes", "empty strings", "empty arrays", "long string"],
)
def test_large_claims_that_the_file_backs(tmp_path, pair, fault):
    path = tmp_path / "large.gguf"
    path.write_bytes(pairs(pair))
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=fault):
            read_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_many_equal_rows_are_no_quadratic_work(tmp_path):
    path = tmp_path / "many.gguf"
    table = [Row(f"t{index}", (8,), 0, 32 * index) for index in range(20_000)]
    path.write_bytes(gguf_bytes([ARCH], table, bytes(32 * 20_000)))
    assert len(read_gguf(path).tensors) == 20_000
