"""The quantisers of octavo.testing: how far what they write is from what they were given."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.testing.block_packing import nearest
from octavo.testing.quantise import ENCODED_TYPES, encode
from octavo.weights.encodings import TensorType
from octavo.weights.quants import MXFP4_VALUES, decode
from octavo.weights.quants_i import IQ4_VALUES

T = TensorType

# Root mean square error of normal values, of their standard deviation.
TYPICAL = {
    T.F32: (0, 0),
    T.F16: (1e-4, 3e-4),
    T.BF16: (1e-3, 3e-3),
    T.Q8_0: (0.005, 0.006),
    T.Q6_K: (0.017, 0.019),
    T.Q5_1: (0.036, 0.040),
    T.Q5_0: (0.040, 0.045),
    T.Q5_K: (0.035, 0.039),
    T.IQ4_NL: (0.073, 0.081),
    T.IQ4_XS: (0.073, 0.081),
    T.Q4_K: (0.070, 0.077),
    T.Q4_1: (0.074, 0.082),
    T.Q4_0: (0.083, 0.091),
    T.MXFP4: (0.10, 0.12),
    T.Q3_K: (0.14, 0.155),
    T.Q2_K: (0.26, 0.29),
}


def back(values, kind):
    encoded = encode(values, kind)
    assert encoded.data.size == kind.size_bytes(values.size)
    return decode(kind, encoded.data, encoded.shape)


def test_every_encoder_is_measured():
    assert TYPICAL.keys() == ENCODED_TYPES


@pytest.mark.parametrize("kind", TYPICAL, ids=lambda kind: kind.value)
@pytest.mark.parametrize("scale", [0.02, 30.0])
def test_typical_error(kind, scale):
    values = np.random.default_rng(0).standard_normal((96, 768), np.float32) * np.float32(scale)
    error = np.sqrt(np.mean((back(values, kind) - values) ** 2)) / scale
    low, high = TYPICAL[kind]
    assert low <= error <= high


# The largest error allowed, in parts of the block's largest magnitude.
WORST = {
    T.Q5_0: 1 / 16,  # only 15 steps on the side opposite to the largest
    T.Q5_1: 1 / 31,
    T.Q2_K: 0.65,
    T.Q3_K: 0.4,
    T.Q4_K: 0.15,
    T.Q5_K: 0.09,
    T.Q6_K: 0.05,
    T.IQ4_NL: 0.22,
    T.IQ4_XS: 0.22,
    T.MXFP4: 1 / 5,
}


@pytest.mark.parametrize("kind", WORST, ids=lambda kind: kind.value)
@settings(max_examples=40, deadline=None)
@given(values=arrays(np.float32, (2, 256), elements=st.floats(-1000, 1000, width=32)))
def test_worst_error(kind, values):
    shape = (-1, kind.block_size)
    largest = np.abs(values.reshape(shape)).max(axis=1)
    error = np.abs(back(values, kind) - values).reshape(shape).max(axis=1)
    assert (error <= largest * WORST[kind] * 1.01 + 2**-12).all()


@pytest.mark.parametrize("kind", ENCODED_TYPES, ids=lambda kind: kind.value)
def test_zeros_stay_zeros_beside_others(kind):
    """A padded matrix must not leak into its new columns."""
    values = np.zeros((3, 512), np.float32)
    assert not back(values, kind).any()
    values[1, :64] = np.linspace(-1, 1, 64)
    assert not back(values, kind)[:, 64:].any()


@pytest.mark.parametrize("kind", ENCODED_TYPES, ids=lambda kind: kind.value)
@pytest.mark.parametrize("value", [0.5, -0.5])
def test_constants(kind, value):
    values = np.full((1, 256), value, np.float32)
    assert np.allclose(back(values, kind), values, rtol=0.02)


def test_mxfp4_keeps_what_it_can_say():
    powers = 2.0 ** np.array([-126, -100, -3, 0, 3, 100, 125])
    values = np.resize(np.array(MXFP4_VALUES, np.float32) / 2, 32) * powers[:, None]
    values = values.astype(np.float32)
    assert np.array_equal(back(values, T.MXFP4), values)


@pytest.mark.parametrize("table", [IQ4_VALUES, MXFP4_VALUES])
def test_nearest(table):
    values = np.arange(-150, 150, 0.125, dtype=np.float32)
    distance = np.abs(values[:, None] - np.array(table, np.float32))
    chosen = np.take_along_axis(distance, nearest(values, table)[:, None].astype(int), axis=1)
    assert np.array_equal(chosen[:, 0], distance.min(axis=1))


def test_chunks_do_not_show():
    """More values than are encoded at a time."""
    once = np.random.default_rng(5).standard_normal((1, 768), np.float32)
    encoded = encode(np.tile(once, (3000, 1)), T.Q4_K)
    assert np.array_equal(encoded.data, np.tile(encode(once, T.Q4_K).data, 3000))


@pytest.mark.parametrize("kind", ["Q5_0", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"])
def test_part_blocks_are_refused(kind):
    size = TensorType[kind].block_size
    with pytest.raises(ValueError, match=f"rows of {size + 1} are not whole blocks of {size}"):
        encode(np.zeros((size, size + 1), np.float32), TensorType[kind])


def test_a_type_without_encoder():
    with pytest.raises(KeyError):
        encode(np.zeros((1, 256), np.float32), TensorType.IQ2_XXS)
