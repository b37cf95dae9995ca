"""Decoding of every block type against the gguf package, bit for bit, hostile bytes included."""

import warnings

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.testing.model_files import write_gguf
from octavo.testing.quantise import ENCODED_TYPES, Encoded
from octavo.testing.random_blocks import SCALE_OFFSETS, random_blocks
from octavo.weights.checkpoint import WeightTensor
from octavo.weights.encodings import GGML_TYPES, TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.iq_grids import GRIDS, grid_of
from octavo.weights.quants import DECODED_TYPES, decode

GGML_NUMBERS = {kind: number for number, kind in GGML_TYPES.items()}
BLOCK_TYPES = sorted((kind for kind in DECODED_TYPES if kind.block_size > 1), key=lambda k: k.value)
by_name = pytest.mark.parametrize("kind", BLOCK_TYPES, ids=lambda kind: kind.value)
HALVES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, -65504, 2**-24, -(2**-24), 2**-14, 1, -1], "<f2"
)


def oracle(kind, blocks):
    """What the gguf package reads in [blocks, block_bytes]."""
    gguf = pytest.importorskip("gguf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of infinite scales
        number = gguf.GGMLQuantizationType(GGML_NUMBERS[kind])
        return gguf.quants.dequantize(blocks, number).reshape(-1)


def assert_same_bits(got, expected):
    """NaNs may differ in their payload."""
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    numbers = ~np.isnan(expected)
    assert np.array_equal(got[numbers].view(np.uint32), expected[numbers].view(np.uint32))


def ours(kind, blocks):
    return decode(kind, blocks.reshape(-1), (len(blocks) * kind.block_size,))


@by_name
def test_random_bytes(kind):
    blocks = np.random.default_rng(1).integers(0, 256, (500, kind.block_bytes), np.uint8)
    assert_same_bits(ours(kind, blocks), oracle(kind, blocks))


@by_name
def test_sensible_blocks(kind):
    tensor = random_blocks(kind, (64, 512), seed=2, scale=0.05)
    blocks = tensor.data.reshape(-1, kind.block_bytes)
    values = ours(kind, blocks)
    assert_same_bits(values, oracle(kind, blocks))
    assert 0.02 < np.std(values) < 0.12


@by_name
def test_hostile_scales(kind):
    """Zero, infinite and smallest scales with random, lowest and highest bits; no warning."""
    random = np.random.default_rng(3)
    blocks = random.integers(0, 256, (300, kind.block_bytes), np.uint8)
    blocks[100:200] = 0
    blocks[200:] = 255
    for offset in SCALE_OFFSETS.get(kind, ()):
        scales = random.choice(HALVES, len(blocks))
        blocks[:, offset : offset + 2] = scales[:, None].view(np.uint8)
    assert_same_bits(ours(kind, blocks), oracle(kind, blocks))


def test_every_exponent_of_mxfp4():
    blocks = np.full((256, 17), 0x5D, np.uint8)
    blocks[:, 0] = np.arange(256)
    values = decode(TensorType.MXFP4, blocks.reshape(-1), (256, 32))
    powers = 2.0 ** (np.arange(256) - 128)
    with np.errstate(over="ignore"):
        assert np.array_equal(values[:, 0], (powers * -6).astype(np.float32))
        assert np.array_equal(values[:, 16], (powers * 6).astype(np.float32))
    assert_same_bits(values.reshape(-1), oracle(TensorType.MXFP4, blocks))


def test_chunks_do_not_show():
    """More blocks than are decoded at a time."""
    once = random_blocks(TensorType.Q6_K, (1, 256), seed=4, scale=1)
    data = np.tile(once.data, 5000)
    values = decode(TensorType.Q6_K, data, (5000, 256))
    assert np.array_equal(values, np.tile(decode(TensorType.Q6_K, once.data, (1, 256)), (5000, 1)))


@pytest.mark.parametrize("kind", GRIDS, ids=lambda kind: kind.value)
def test_grids_have_a_word_for_every_number(kind):
    words = {"IQ1_S": 2048, "IQ1_M": 2048, "IQ2_XS": 512, "IQ2_S": 1024, "IQ3_S": 512}
    grid = grid_of(kind)
    assert grid.shape == (words.get(kind.value, 256), GRIDS[kind].width)
    assert set(np.unique(grid)) <= set(GRIDS[kind].letters)
    assert len(np.unique(grid, axis=0)) == len(grid)
    assert not grid.flags.writeable


def test_which_types_there_are():
    decoded = (
        "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K MXFP4 IQ4_NL IQ4_XS "
        "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S"
    )
    assert {kind.value for kind in DECODED_TYPES} == set(decoded.split())
    unencoded = "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S"
    assert {kind.value for kind in DECODED_TYPES - ENCODED_TYPES} == set(unencoded.split())


REFUSED = [kind for kind in GGML_TYPES.values() if kind not in DECODED_TYPES]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.value)
def test_others_are_refused_by_name(tmp_path, kind):
    data = np.zeros(kind.size_bytes(512), np.uint8)
    path = write_gguf(tmp_path / "m.gguf", {}, {"odd": Encoded(kind, (2, 256), data)})
    tensor = WeightTensor("odd", read_gguf(path).tensors["odd"])
    with pytest.raises(ModelFileError, match=rf"^m.gguf: {kind.value} is not decoded .*'odd'") as e:
        tensor.float32()
    assert "\n" not in str(e.value)
    assert "TQ1_0" in {kind.value for kind in REFUSED}


@by_name
def test_rows_of_part_blocks_are_refused(tmp_path, kind):
    """In a file, whatever its size."""
    short = kind.block_size // 2
    data = np.zeros(3 * kind.block_bytes, np.uint8)
    path = write_gguf(tmp_path / "m.gguf", {}, {"odd": Encoded(kind, (2, 3 * short), data)})
    with pytest.raises(ModelFileError, match=rf"rows of {3 * short} elements.*{kind.value}"):
        read_gguf(path)


@by_name
def test_a_tensor_cut_short_is_refused(tmp_path, kind):
    data = np.zeros(kind.size_bytes(4 * 256) - 33, np.uint8)
    path = write_gguf(tmp_path / "m.gguf", {}, {"odd": Encoded(kind, (4, 256), data)})
    with pytest.raises(ModelFileError, match="'odd'"):
        read_gguf(path)
