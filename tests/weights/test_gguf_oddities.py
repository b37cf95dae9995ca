"""Odd but possible GGUF files: beyond 4 GiB, of any alignment, with settings of no sense."""

import math
import struct
import tracemalloc

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.models.registry import build
from octavo.testing.model_files import Pair, Row, gguf_bytes, typed, write_gguf
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import GGML_TYPES
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import GGUFArray, ValueKind

K = ValueKind
ARCH = Pair("general.architecture", K.STRING, "llama")
GIB = 1 << 30


def sparse(path, rows, size):
    """A file of `size` bytes whose data was never written."""
    path.write_bytes(gguf_bytes([ARCH], rows))
    start = path.stat().st_size
    with path.open("r+b") as file:
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("the file system holds no sparse files")
    return start


def test_tensors_beyond_four_gib(tmp_path):
    path = tmp_path / "large.gguf"
    rows = [Row("wide", (1 << 20, 1088), 0, 0), Row("last", (4,), 0, (1 << 20) * 1088 * 4)]
    start = sparse(path, rows, 5 * GIB)
    with path.open("r+b") as file:
        file.seek(start + rows[1].offset)
        file.write(struct.pack("<4f", 1, 2, 3, 4))
    tracemalloc.start()
    try:
        file = read_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    wide, last = file.tensors["wide"], file.tensors["last"]
    assert wide.data.nbytes == rows[1].offset > 4 * GIB
    assert last.data.view("<f4").tolist() == [1, 2, 3, 4]
    file.close()


def test_a_tensor_that_ends_one_byte_beyond_five_gib(tmp_path):
    path = tmp_path / "short.gguf"
    row = Row("wide", (1 << 20, 1088), 0, 0)
    start = sparse(path, [row], 5 * GIB)
    with path.open("r+b") as file:
        file.truncate(start + (1 << 20) * 1088 * 4 - 1)
    with pytest.raises(ModelFileError, match=r"'wide'.*lies beyond the end"):
        read_gguf(path)


@pytest.mark.parametrize("alignment", [8, 16, 64, 4096, 1 << 20])
def test_alignment(tmp_path, alignment):
    path = tmp_path / "aligned.gguf"
    pairs = [ARCH, Pair("general.alignment", K.U32, alignment)]
    rows = [Row("a", (2,), 0, 0), Row("b", (2,), 0, alignment)]
    data = struct.pack("<2f", 0, 0.5).ljust(alignment, b"\0") + struct.pack("<2f", 1, 1.5)
    path.write_bytes(gguf_bytes(pairs, rows, data, alignment=alignment))
    tensors = read_gguf(path).tensors
    assert tensors["a"].data.view("<f4").tolist() == [0, 0.5]
    assert tensors["b"].data.view("<f4").tolist() == [1, 1.5]


def test_no_tensors(tmp_path):
    path = tiny_llama(tmp_path / "m.gguf", format="gguf")
    file = read_gguf(path)
    write_gguf(path, file.metadata, {})
    with open_checkpoint(path) as checkpoint, pytest.raises(ModelFileError, match=r"m\.gguf"):
        build(checkpoint)


def test_a_key_of_64_kib(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes([Pair("k" * 65_536, K.U8, 1), Pair("k" * 65_537, K.U8, 2)]))
    assert list(read_gguf(path).metadata.values()) == [1, 2]


SETTINGS = {
    "llama.rope.freq_base": (math.nan, math.inf, -1.0, 0.0, "10000", True),
    "llama.attention.layer_norm_rms_epsilon": (math.nan, -math.inf, "x"),
    "llama.rope.scaling.factor": (math.nan, math.inf, 0.0, -2.0, "x"),
    "llama.block_count": (0, 1 << 40, 1.0, True, "2", GGUFArray(K.U32, [2])),
    "llama.attention.head_count": (0, 3, 1 << 62, 4.0, GGUFArray(K.U32, [4, 4])),
    "llama.embedding_length": (0, 63, 1 << 62, 64.0),
    "llama.context_length": (0, 1 << 62, 2048.0),
    "llama.feed_forward_length": (0, 1 << 62, GGUFArray(K.U32, [128, 128])),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in SETTINGS.items() for value in values]
)
def test_settings_of_no_sense(tmp_path, key, value):
    path = tiny_llama(tmp_path / "m.gguf", format="gguf")
    file = read_gguf(path)
    metadata = dict(file.metadata) | {"llama.rope.scaling.type": "linear"}
    metadata.setdefault("llama.rope.scaling.factor", 2.0)
    _rewrite(path, file, metadata | {key: value})
    with pytest.raises(ModelFileError) as refused, open_checkpoint(path) as checkpoint:
        build(checkpoint)
    assert str(refused.value).startswith("m.gguf: ")
    assert key.removeprefix("llama.") in str(refused.value)
    assert len(str(refused.value)) < 400


def _rewrite(path, file, metadata):
    """The same tensors with other metadata."""
    numbers = {kind: number for number, kind in GGML_TYPES.items()}
    rows, data = [], b""
    for tensor in file.tensors.values():
        rows.append(Row(tensor.name, tensor.shape[::-1], numbers[tensor.type], len(data)))
        data += tensor.data.tobytes() + bytes(-tensor.data.nbytes % 32)
    pairs = [Pair(key, *typed(value)) for key, value in metadata.items()]
    path.write_bytes(gguf_bytes(pairs, rows, data))


# ------------------------------------------------------------------------------- split files


def part(path, number, count, tensors, **metadata):
    split = {"split.no": number, "split.count": count, **metadata}
    return write_gguf(path / f"m-{number + 1:05}-of-{count:05}.gguf", split, tensors)


ONE = np.zeros(4, np.float32)


def test_a_part_that_leads_back_to_the_first(tmp_path):
    first = part(tmp_path, 0, 2, {"a": ONE})
    (tmp_path / "m-00002-of-00002.gguf").symlink_to(first.name)
    with pytest.raises(ModelFileError, match=r"00002-of-00002\.gguf: 'split\.no' is 0"):
        read_gguf(first)


def test_a_part_that_leads_to_itself(tmp_path):
    first = part(tmp_path, 0, 2, {"a": ONE})
    (tmp_path / "m-00002-of-00002.gguf").symlink_to("m-00002-of-00002.gguf")
    with pytest.raises(ModelFileError, match=r"00002-of-00002\.gguf: cannot be read"):
        read_gguf(first)


def test_a_part_of_another_model(tmp_path):
    first = part(tmp_path, 0, 2, {"a": ONE}, **{"split.tensors.count": 2})
    part(tmp_path, 1, 2, {"b": ONE, "c": ONE})
    with pytest.raises(ModelFileError, match=r"'split\.tensors\.count' wrong.*hold 3"):
        read_gguf(first)


def test_the_most_parts_that_a_name_can_count(tmp_path):
    first = part(tmp_path, 0, 99_999, {"a": ONE})
    with pytest.raises(ModelFileError, match=r"00002-of-99999\.gguf: cannot be read"):
        read_gguf(first)


@pytest.mark.parametrize("kind", [K.U16, K.U32, K.I32, K.U64])
def test_split_numbers_of_any_width(tmp_path, kind):
    numbers = [{"split.no": (kind, n), "split.count": (kind, 2)} for n in (0, 1)]
    for n, metadata in enumerate(numbers):
        write_gguf(tmp_path / f"m-0000{n + 1}-of-00002.gguf", metadata, {f"t{n}": ONE})
    assert len(read_gguf(tmp_path / "m-00001-of-00002.gguf").tensors) == 2
