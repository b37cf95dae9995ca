"""Valid GGUF files: metadata of every kind, tensors, versions, split files."""

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.testing.model_files import Pair, gguf_bytes, write_gguf
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import GGUFArray, ValueKind

K = ValueKind

SCALARS = [
    (K.U8, 255),
    (K.I8, -128),
    (K.U16, 65535),
    (K.I16, -32768),
    (K.U32, 2**32 - 1),
    (K.I32, -(2**31)),
    (K.F32, 0.5),
    (K.BOOL, True),
    (K.BOOL, False),
    (K.STRING, "naïve 🎈 \0 text"),
    (K.STRING, ""),
    (K.U64, 2**64 - 1),
    (K.I64, -(2**63)),
    (K.F64, 1e300),
]
ARRAYS = [
    GGUFArray(K.I32, [1, -2, 3]),
    GGUFArray(K.U32, []),
    GGUFArray(K.F32, [0.5, -0.25]),
    GGUFArray(K.BOOL, [True, False]),
    GGUFArray(K.STRING, ["a", "", "é"]),
    GGUFArray(K.STRING, []),
    GGUFArray(K.ARRAY, [GGUFArray(K.U8, [1, 2]), GGUFArray(K.STRING, ["x"])]),
]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("kind", "value"), [*SCALARS, *((K.ARRAY, array) for array in ARRAYS)])
def test_metadata_value(tmp_path, version, kind, value):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes([Pair("a.b", kind, value), Pair("z", K.U8, 7)], version=version))
    metadata = read_gguf(path).metadata
    assert metadata == {"a.b": value, "z": 7}
    assert type(metadata["a.b"]) is type(value)


@pytest.mark.parametrize("array", ARRAYS)
def test_arrays_remember_the_kind_of_their_elements(tmp_path, array):
    read = read_gguf(write_gguf(tmp_path / "m.gguf", {"a": array}, {})).metadata["a"]
    assert read.kind is array.kind
    assert [getattr(element, "kind", None) for element in read] == [
        getattr(element, "kind", None) for element in array
    ]


def test_tensors_are_mapped_rows_last(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors = {"one": values, "two": values[0] + 1}
    file = read_gguf(write_gguf(tmp_path / "m.gguf", {"general.alignment": 32}, tensors))
    assert {name: tensor.shape for name, tensor in file.tensors.items()} == {
        "one": (2, 3),
        "two": (3,),
    }
    assert file.tensors["one"].data.tobytes() == values.tobytes()
    assert not file.tensors["one"].data.flags.writeable
    data = file.tensors["two"].data
    file.close()
    assert data.view("<f4").tolist() == [1, 2, 3]  # arrays outlive close


def test_file_without_tensors_or_padding(tmp_path):
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_bytes([Pair("k", K.U8, 1)]).rstrip(b"\0"))
    assert read_gguf(path).tensors == {}


def write_split(folder, count=3, **changes):
    """`model-0000N-of-…`: one tensor each. changes: key with `__`, number of the part -> value."""
    for number in range(count):
        metadata = {"split.no": number, "split.count": count, "split.tensors.count": count}
        if number == 0:
            metadata["general.architecture"] = "llama"
        metadata |= {key.replace("__", "."): v[number] for key, v in changes.items() if number in v}
        tensors = {f"t{number}": np.full(4, number, np.float32)}
        write_gguf(folder / f"model-{number + 1:05}-of-{count:05}.gguf", metadata, tensors)
    return folder / f"model-00001-of-{count:05}.gguf"


def test_split_file_is_one(tmp_path):
    file = read_gguf(write_split(tmp_path))
    assert file.metadata["general.architecture"] == "llama"
    assert [t.data.view("<f4")[0] for t in file.tensors.values()] == [0, 1, 2]
    assert file.tensors["t2"].file == "model-00003-of-00003.gguf"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split__no": {1: 2}}, ["model-00002-of-00003.gguf", "split.no"]),
        ({"split__count": {2: 4}}, ["model-00003-of-00003.gguf", "split.count"]),
        ({"split__count": {0: 4}}, ["model-00001-of-00003.gguf", "one of 4 parts"]),
        ({"split__count": {0: "many"}}, ["model-00001-of-00003.gguf", "split.count"]),
        ({"split__tensors__count": {0: 9}}, ["model-00001-of-00003.gguf", "split.tensors.count"]),
    ],
)
def test_split_numbers_must_agree(tmp_path, changes, words):
    with pytest.raises(ModelFileError) as refused:
        read_gguf(write_split(tmp_path, **changes))
    assert all(word in str(refused.value) for word in words)


def test_split_part_missing_twice_or_not_the_first(tmp_path):
    first = write_split(tmp_path)
    with pytest.raises(ModelFileError, match=r"not the first part.*model-00001-of-00003"):
        read_gguf(tmp_path / "model-00002-of-00003.gguf")
    third = tmp_path / "model-00003-of-00003.gguf"
    metadata = {"split.no": 2, "split.count": 3}
    write_gguf(third, metadata, {"t1": np.zeros(4, np.float32)})
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf.*'t1' is in an earlier part"):
        read_gguf(first)
    third.unlink()
    with pytest.raises(ModelFileError, match=r"model-00003-of-00003\.gguf: cannot be read"):
        read_gguf(first)


def test_split_file_needs_its_name(tmp_path):
    path = write_split(tmp_path).rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFileError, match=r"renamed\.gguf: is one of 3 parts.*00001-of-00003"):
        read_gguf(path)


def test_split_of_one_is_an_ordinary_file(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", {"split.count": 1}, {"t": np.zeros(4, np.float32)})
    assert list(read_gguf(path).tensors) == ["t"]
