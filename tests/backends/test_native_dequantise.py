"""Types without kernels: dequantised at load with one line in the log, or refused by name."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from octavo.backends.native import NativeBackend
from octavo.backends.native_program import WEIGHT_TYPES, dequantised
from octavo.errors import ModelFileError
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.model_files import write_gguf
from octavo.testing.quantise import Encoded, encode
from octavo.testing.random_blocks import random_blocks
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import WeightTensor, open_checkpoint
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.quants import DECODED_TYPES, decode

TOKENS = np.random.default_rng(7).integers(0, 256, 30).tolist()
WITHOUT_KERNELS = sorted(kind.value for kind in DECODED_TYPES if kind.value not in WEIGHT_TYPES)


def rewritten(source, target, change):
    """`source` with other matrices."""
    file = read_gguf(source)
    tensors = {
        name: change(tensor) if len(tensor.shape) > 1 else WeightTensor(name, tensor).float32()
        for name, tensor in file.tensors.items()
    }
    return write_gguf(target, file.metadata, tensors)


def scores(path):
    checkpoint = open_checkpoint(path)
    model = build(checkpoint)
    backend = NativeBackend(
        model.program, checkpoint, vocab_size=model.config.vocab_size, threads=1
    )
    return Driver(backend, num_blocks=12).scores(TOKENS, [20, 10])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("dequantise") / "source.gguf"
    shape = {"hidden": 256, "heads": 4, "kv_heads": 2, "intermediate": 256, "layers": 1}
    return tiny_llama(path, format="gguf", **shape)


def test_all_of_the_small_types_are_meant():
    kinds = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}
    assert set(WITHOUT_KERNELS) == kinds


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("weight_type", WITHOUT_KERNELS)
def test_a_model_runs_as_its_numbers_in_f16(tmp_path, source, caplog, weight_type, tie):
    kind = TensorType[weight_type]

    def blocks(tensor):
        return random_blocks(kind, tensor.shape, len(tensor.name), 1 / 16)

    def halves(tensor):
        return encode(WeightTensor(tensor.name, tensor).float32(), TensorType.F16)

    path = rewritten(source, tmp_path / "blocks.gguf", blocks)
    if tie:
        path = without_head(path, tmp_path / "tied.gguf")
    with caplog.at_level(logging.INFO, "octavo.backends"):
        got = scores(path)
    matrices = sum(len(tensor.shape) > 1 for tensor in read_gguf(path).tensors.values())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f": {matrices} of {weight_type} to F16")
    assert np.array_equal(got, scores(rewritten(path, tmp_path / "halves.gguf", halves)))


def without_head(path, target):
    file = read_gguf(path)
    tensors = {
        name: Encoded(tensor.type, tensor.shape, np.array(tensor.data).reshape(-1))
        for name, tensor in file.tensors.items()
        if name != "output.weight"
    }
    return write_gguf(target, file.metadata, tensors)


def test_what_f16_cannot_hold_becomes_f32():
    tensor = random_blocks(TensorType.IQ3_S, (3, 512), 1, 2e4)
    expected = decode(TensorType.IQ3_S, tensor.data, (3, 512))
    assert 65520 < np.abs(expected).max() < np.inf
    kind, raw = dequantised(TensorType.IQ3_S, tensor.data, (3, 512))
    assert kind is TensorType.F32
    assert np.array_equal(raw.view("<f4").reshape(3, 512), expected)


def test_infinities_of_the_file_need_no_f32():
    tensor = random_blocks(TensorType.IQ3_S, (3, 512), 2, 1.0)
    tensor.data[:2] = np.array([np.inf], "<f2").view(np.uint8)
    expected = decode(TensorType.IQ3_S, tensor.data, (3, 512))
    kind, raw = dequantised(TensorType.IQ3_S, tensor.data, (3, 512))
    assert kind is TensorType.F16
    np.testing.assert_array_equal(raw.view("<f2").reshape(3, 512), expected.astype("<f2"))


@pytest.mark.parametrize("kind", [TensorType.TQ1_0, TensorType.Q8_K])
def test_what_is_not_decoded_is_refused_by_name(source, kind):
    with open_checkpoint(source) as checkpoint:
        model = build(checkpoint)
        head = checkpoint.tensors["lm_head.weight"]
        odd = replace(head, stored=replace(head.stored, type=kind))
        changed = replace(checkpoint, tensors={**checkpoint.tensors, "lm_head.weight": odd})
        with pytest.raises(ModelFileError, match=rf"no kernels for {kind.value} .*MXFP4: convert"):
            NativeBackend(model.program, changed, vocab_size=model.config.vocab_size)
