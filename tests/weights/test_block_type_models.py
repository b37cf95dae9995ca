"""Whole tiny models on the reference backend: in every block type, and widened with zeros."""

import numpy as np
import pytest

from octavo.backends.reference import ReferenceBackend
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.model_files import write_gguf
from octavo.testing.pad import pad_to_multiple
from octavo.testing.quantise import ENCODED_TYPES, encode
from octavo.testing.random_blocks import random_blocks
from octavo.testing.requantise import FILE_TYPES, reencode
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import WeightTensor, open_checkpoint
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.quants import DECODED_TYPES

TOKENS = np.random.default_rng(7).integers(0, 256, 12).tolist()
WIDE = {"hidden": 256, "heads": 4, "kv_heads": 2, "intermediate": 256, "layers": 1}
RANDOM = sorted(kind.value for kind in DECODED_TYPES - ENCODED_TYPES)


def scores(path):
    """Log-probabilities of the whole vocabulary after each token."""
    with open_checkpoint(path) as checkpoint:
        model = build(checkpoint)
        backend = ReferenceBackend(
            model.program, checkpoint, vocab_size=model.config.vocab_size, kv_dtype="float32"
        )
        return Driver(backend, num_blocks=8).scores(TOKENS, [len(TOKENS)])


def types(path):
    """Of the matrices; vectors are checked to be F32."""
    tensors = read_gguf(path).tensors.values()
    assert {tensor.type.value for tensor in tensors if len(tensor.shape) == 1} == {"F32"}
    return {tensor.type.value for tensor in tensors if len(tensor.shape) > 1}


def rewritten(source, target, change):
    """`source` with other matrices."""
    file = read_gguf(source)
    tensors = {
        name: change(tensor) if len(tensor.shape) > 1 else WeightTensor(name, tensor).float32()
        for name, tensor in file.tensors.items()
    }
    return write_gguf(target, file.metadata, tensors)


@pytest.mark.parametrize("weight_type", [*FILE_TYPES, *RANDOM])
def test_a_model_in_every_type(tmp_path, weight_type):
    """It says what the same values say in F32, which a type that is misread could not."""
    source = tiny_llama(tmp_path / "source.gguf", format="gguf", **WIDE)
    path = tmp_path / "typed.gguf"
    if weight_type in FILE_TYPES:
        reencode(source, path, weight_type)
    else:
        kind = TensorType[weight_type]
        rewritten(source, path, lambda t: random_blocks(kind, t.shape, len(t.name), 1 / 16))
    assert types(path) == {weight_type}
    plain = rewritten(
        path,
        tmp_path / "plain.gguf",
        lambda t: encode(WeightTensor(t.name, t).float32(), TensorType.F32),
    )
    got = scores(path)
    assert np.array_equal(got, scores(plain))
    assert np.isfinite(got).all()
    assert np.std(got[-1]) > 0.1


NINE_THREE = {"hidden": 72, "heads": 9, "kv_heads": 3, "intermediate": 80, "tie": True}
TOLD_WIDTH = {"hidden": 80, "heads": 6, "kv_heads": 3, "head_dim": 8, "intermediate": 64}


@pytest.mark.parametrize(
    ("shape", "multiple", "expected"),
    [
        (NINE_THREE, 32, {"q": (96, 96), "k": (32, 96), "gate": (96, 96)}),
        (TOLD_WIDTH, 32, {"q": (64, 96), "k": (32, 96), "gate": (64, 96)}),
        (NINE_THREE | {"hidden": 576, "intermediate": 1536, "layers": 1}, 256, {"q": (768, 768)}),
    ],
    ids=["9/3 heads", "width of heads told", "SmolLM2's shape"],
)
def test_a_widened_model_is_the_same_function(tmp_path, shape, multiple, expected):
    source = tiny_llama(tmp_path / "source.gguf", format="gguf", **shape)
    pad_to_multiple(source, tmp_path / "wide.gguf", "F32", multiple)
    with open_checkpoint(tmp_path / "wide.gguf") as checkpoint:
        layer = {
            name.split(".")[-2].removesuffix("_proj"): tensor.shape
            for name, tensor in checkpoint.tensors.items()
            if ".layers.0." in name
        }
    assert {name: layer[name] for name in expected} == expected
    assert np.allclose(scores(tmp_path / "wide.gguf"), scores(source), rtol=0, atol=2e-5)


def test_smollm2_becomes_twelve_heads(tmp_path):
    shape = NINE_THREE | {"hidden": 576, "intermediate": 1536, "layers": 1}
    source = tiny_llama(tmp_path / "source.gguf", format="gguf", weight_type="Q8_0", **shape)
    pad_to_multiple(source, tmp_path / "wide.gguf", "Q5_K")
    before, after = read_gguf(source).metadata, read_gguf(tmp_path / "wide.gguf").metadata
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    assert changed.pop("llama.attention.layer_norm_rms_epsilon") == pytest.approx(0.75e-5)
    assert changed == {
        "general.file_type": 17,
        "llama.embedding_length": 768,
        "llama.attention.head_count": 12,
        "llama.attention.head_count_kv": 4,
    }
    assert before.keys() | {"general.file_type"} == after.keys()


BLOCKS_OF_256 = sorted(kind.value for kind in ENCODED_TYPES if kind.block_size == 256)


@pytest.mark.parametrize("weight_type", BLOCKS_OF_256)
def test_no_matrix_of_a_widened_model_keeps_another_type(tmp_path, weight_type):
    source = tiny_llama(tmp_path / "source.gguf", format="gguf", weight_type="F16", **NINE_THREE)
    pad_to_multiple(source, tmp_path / "wide.gguf", weight_type)
    assert types(tmp_path / "wide.gguf") == {weight_type}
    assert np.isfinite(scores(tmp_path / "wide.gguf")).all()


def test_what_cannot_be_widened(tmp_path):
    source = tiny_llama(tmp_path / "source.gguf", format="gguf", **NINE_THREE)
    target = tmp_path / "wide.gguf"
    with pytest.raises(ValueError, match="blocks of 256 do not divide"):
        pad_to_multiple(source, target, "Q6_K", 128)
    file = read_gguf(source)
    tensors = {"blk.0.attn_q.bias": np.zeros(72, np.float32)}
    odd = write_gguf(tmp_path / "odd.gguf", file.metadata, tensors)
    with pytest.raises(ValueError, match=r"blk\.0\.attn_q\.bias .* plain Llama"):
        pad_to_multiple(odd, target, "F32")
    other = write_gguf(tmp_path / "other.gguf", {"general.architecture": "gemma3"}, {})
    with pytest.raises(ValueError, match="architecture llama"):
        pad_to_multiple(other, target, "F32")
    assert not target.exists()
