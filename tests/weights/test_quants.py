"""Decoding of the plain types against values worked out by hand, and against their encoders.

`test_block_types.py` compares every block type with the gguf package.
"""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.testing.quantise import encode
from octavo.weights.encodings import GGML_TYPES, TensorType
from octavo.weights.quants import decode


def decoded(kind: TensorType, data: bytes, *shape: int) -> np.ndarray:
    return decode(kind, np.frombuffer(data, np.uint8), shape)


def test_floats():
    values = np.array([[1.5, -2.0], [0.0, 65504.0]], np.float32)
    assert np.array_equal(decoded(TensorType.F32, values.tobytes(), 2, 2), values)
    assert np.array_equal(decoded(TensorType.F16, values.astype("<f2").tobytes(), 2, 2), values)
    bf16 = bytes.fromhex("c03f 00c0 0000 807f")
    assert decoded(TensorType.BF16, bf16, 4).tolist() == [1.5, -2.0, 0.0, np.inf]


def test_f32_is_a_view_and_may_be_unaligned():
    data = np.frombuffer(b"\0" + struct.pack("<2f", 1, 2), np.uint8)[1:]
    values = decode(TensorType.F32, data, (2,))
    assert values.tolist() == [1, 2]
    assert np.shares_memory(values, data)


def test_q4_0_low_nibbles_come_first():
    packed = bytes(
        low | high << 4 for low, high in zip(range(16), reversed(range(16)), strict=True)
    )
    values = decoded(TensorType.Q4_0, struct.pack("<e", 0.5) + packed, 1, 32)
    expected = [0.5 * (q - 8) for q in [*range(16), *reversed(range(16))]]
    assert values.tolist() == [expected]


def test_q4_1_has_scale_then_minimum():
    values = decoded(TensorType.Q4_1, struct.pack("<ee", 0.25, -3) + b"\xf1" * 16, 32)
    assert values.tolist() == [0.25 * 1 - 3] * 16 + [0.25 * 15 - 3] * 16


def test_q8_0_is_signed():
    steps = [*range(-128, -112), *range(112, 128)]
    values = decoded(TensorType.Q8_0, struct.pack("<e32b", 2, *steps), 1, 1, 32)
    assert values.tolist() == [[[2.0 * step for step in steps]]]


def test_several_blocks_keep_their_scales():
    data = b"".join(struct.pack("<e", scale) + b"\x99" * 16 for scale in (1, 2, 4))
    assert decoded(TensorType.Q4_0, data, 3, 32)[:, 0].tolist() == [1, 2, 4]


def test_hostile_scales_are_silent():
    data = struct.pack("<e", float("inf")) + b"\x88" * 16
    assert np.isnan(decoded(TensorType.Q4_0, data, 32)).all()


BLOCK_VALUES = st.floats(-1000, 1000, width=32)
ALLOWED = {  # the error allowed: steps of the block's largest magnitude, or of its span
    TensorType.F32: lambda block: 0,
    TensorType.F16: lambda block: np.abs(block).max() * 2**-11 + 2**-25,
    TensorType.BF16: lambda block: np.abs(block).max() * 2**-8 + 2**-126,
    # half a step, but the end opposite to the largest has only seven steps: one whole step
    TensorType.Q4_0: lambda block: np.abs(block).max() / 8 * 1.01 + 2**-20,
    TensorType.Q4_1: lambda block: np.ptp(block) / 30 * 1.01 + np.abs(block).max() * 2**-9 + 2**-20,
    TensorType.Q8_0: lambda block: np.abs(block).max() / 254 * 1.01 + 2**-16,
}


@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.value)
@settings(max_examples=50, deadline=None)
@given(values=arrays(np.float32, (2, 64), elements=BLOCK_VALUES))
def test_encoding_and_decoding_agree(kind, values):
    encoded = encode(values, kind)
    assert encoded.data.size == kind.size_bytes(values.size)
    back = decode(kind, encoded.data, encoded.shape)
    for block, error in zip(
        values.reshape(-1, 32), np.abs(back - values).reshape(-1, 32), strict=True
    ):
        assert error.max() <= ALLOWED[kind](block)


@settings(deadline=None)
@given(data=st.binary(min_size=34, max_size=34))
def test_every_block_decodes(data):
    for kind in (TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0):
        assert decoded(kind, data[: kind.block_bytes], 32).dtype == np.float32


def test_encode_refuses_part_blocks():
    with pytest.raises(ValueError, match="rows of 33"):
        encode(np.zeros((2, 33), np.float32), TensorType.Q8_0)


@pytest.mark.parametrize(
    ("number", "name", "block", "size"),
    [
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (8, "Q8_0", 32, 34),
        (12, "Q4_K", 256, 144),
        (14, "Q6_K", 256, 210),
        (23, "IQ4_XS", 256, 136),
        (30, "BF16", 1, 2),
        (39, "MXFP4", 32, 17),
    ],
)
def test_table_of_types(number, name, block, size):
    kind = GGML_TYPES[number]
    assert (kind.value, kind.block_size, kind.block_bytes) == (name, block, size)
    assert kind.size_bytes(2 * block) == 2 * size
