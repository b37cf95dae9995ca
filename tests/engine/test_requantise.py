"""The writer of re-encoded models: what it keeps, and that values are rounded as they should be."""

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.testing.quantise import encode
from octavo.testing.requantise import FILE_TYPES, reencode
from octavo.testing.tiny import tiny_llama, write_gguf
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import ValueKind
from octavo.weights.quants import decode


@pytest.mark.parametrize("weight_type", FILE_TYPES)
def test_a_model_in_every_type(tmp_path, weight_type):
    source = tiny_llama(
        tmp_path / "source.gguf",
        format="gguf",
        weight_type="Q4_1",
        hidden=256,
        intermediate=256,
        layers=1,
    )
    target = tmp_path / "target.gguf"
    reencode(source, target, weight_type)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.gguf", "target.gguf"]
    with open_checkpoint(source) as old, open_checkpoint(target) as new:
        assert new.metadata == old.metadata
        assert list(new.tensors) == list(old.tensors)
        for name, tensor in new.tensors.items():
            was = old.tensors[name]
            if tensor.type is was.type:
                assert tensor.type.value == (weight_type if len(was.shape) > 1 else "F32")
                assert np.array_equal(tensor.raw(), was.raw())
            else:
                assert tensor.type.value == weight_type
                again = encode(was.float32(), tensor.type)
                rounded = decode(again.type, again.data, again.shape)
                assert np.array_equal(tensor.float32(), rounded)


def test_f32_means_what_the_source_means(tmp_path):
    source = tiny_llama(tmp_path / "source.gguf", format="gguf", weight_type="Q4_0")
    reencode(source, tmp_path / "target.gguf", "F32")
    with open_checkpoint(source) as old, open_checkpoint(tmp_path / "target.gguf") as new:
        for name, tensor in new.tensors.items():
            assert np.array_equal(tensor.float32(), old.tensors[name].float32())


def test_metadata_keeps_its_kinds(tmp_path):
    values = {
        "general.alignment": (ValueKind.U32, 32),
        "general.file_type": (ValueKind.U32, 3),
        "a": (ValueKind.U64, 7),
        "b": (ValueKind.I8, -7),
        "c": (ValueKind.F64, 0.1),
        "d": ["x", "ÿ"],
        "e": True,
    }
    matrix = np.arange(64, dtype=np.float32).reshape(2, 32)
    source = write_gguf(tmp_path / "source.gguf", values, {"m": matrix})
    reencode(source, tmp_path / "target.gguf", "F16")
    values["general.file_type"] = (ValueKind.U32, 1)
    expected = write_gguf(tmp_path / "expected.gguf", values, {"m": encode(matrix, TensorType.F16)})
    assert (tmp_path / "target.gguf").read_bytes() == expected.read_bytes()
    assert np.array_equal(
        read_gguf(expected).tensors["m"].data, matrix.astype("<f2").view("u1").ravel()
    )


def test_what_cannot_be_written(tmp_path):
    odd = write_gguf(tmp_path / "odd.gguf", {}, {"m": np.ones((2, 40), np.float32)})
    with pytest.raises(ValueError, match="not whole blocks"):
        reencode(odd, tmp_path / "target.gguf", "Q8_0")
    with pytest.raises(KeyError):
        reencode(odd, tmp_path / "target.gguf", "IQ2_S")
    with pytest.raises(ModelFileError):
        reencode(tmp_path / "none.gguf", tmp_path / "target.gguf", "F16")
    assert list(tmp_path.iterdir()) == [odd]
