"""Decodes the IQ types: weights are words of a grid with signs, or entries of a short table.

Each function takes [blocks, block_bytes] and gives [blocks, block_size], products in the order of
GGML's definition.
"""

import numpy as np
from numpy.typing import NDArray

from octavo.weights.block_fields import (
    Bytes,
    Floats,
    even_signs,
    fp16,
    in_order,
    planes,
    signs,
    uint16,
    uint32,
)
from octavo.weights.encodings import TensorType
from octavo.weights.iq_grids import grid_of

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the 4 bits of IQ4_NL and IQ4_XS mean, before the scale."""

_DELTA = np.float32(0.125)  # IQ1: all words are moved up or down by this
_GROUP_SHIFTS = np.arange(0, 28, 7, dtype=np.uint32)  # four sign numbers of 7 bits
_FIELD_SHIFTS = np.arange(0, 12, 3, dtype=np.uint16)  # four fields of 3 bits


def iq4_nl(blocks: Bytes) -> Floats:
    """32 weights: bytes d 2, table entries 16 (first half of the block in the low nibbles)."""
    return fp16(blocks, 0) * _iq4_values(planes(blocks[:, 2:], 4)).reshape(-1, 32)


def iq4_xs(blocks: Bytes) -> Floats:
    """8 sub-blocks of 32: bytes d 2, scales' high bits 2, low bits 4, table entries 128."""
    low, high = in_order(blocks[:, 4:8], 4), in_order(blocks[:, 2:4], 2)
    scales = (low | high << 4).astype(np.float32) - np.float32(32)
    values = _iq4_values(planes(blocks[:, 8:].reshape(-1, 8, 16), 4))
    return _product(fp16(blocks, 0) * scales, values)


def iq2_xxs(blocks: Bytes) -> Floats:
    """8 groups of 32: bytes d 2, then for each group 4 grid numbers and 32 bits.

    Those are four sign numbers of 7 bits and a scale of 4.
    """
    parts = blocks[:, 2:].reshape(-1, 8, 8)
    last = uint32(parts[:, :, 4:])  # [blocks, 8, 1]
    scales = _half_scale(blocks, last[..., 0] >> 28, 0.25)
    grid = grid_of(TensorType.IQ2_XXS)[parts[:, :, :4]]
    return _product(scales, grid, even_signs(last >> _GROUP_SHIFTS & 127))


def iq2_xs(blocks: Bytes) -> Floats:
    """16 groups of 16: bytes d 2, 32 numbers of 16 bits (grid 9, signs 7), scales 8."""
    words = uint16(blocks[:, 2:66])
    scales = _half_scale(blocks, in_order(blocks[:, 66:], 4), 0.25)
    return _product(scales, grid_of(TensorType.IQ2_XS)[words & 511], even_signs(words >> 9))


def iq2_s(blocks: Bytes) -> Floats:
    """16 groups of 16: bytes d 2, grid low 32, signs 32, grid high 8, scales 8."""
    words = _numbers(blocks[:, 2:34], in_order(blocks[:, 66:74], 2))
    scales = _half_scale(blocks, in_order(blocks[:, 74:], 4), 0.25)
    return _product(scales, grid_of(TensorType.IQ2_S)[words], signs(blocks[:, 34:66]))


def iq3_xxs(blocks: Bytes) -> Floats:
    """8 groups of 32: bytes d 2, grid 64, then for each group 32 bits as in IQ2_XXS."""
    last = uint32(blocks[:, 66:])
    scales = _half_scale(blocks, last >> 28, 0.5)
    grid = grid_of(TensorType.IQ3_XXS)[blocks[:, 2:66]]
    return _product(scales, grid, even_signs(last[..., None] >> _GROUP_SHIFTS & 127))


def iq3_s(blocks: Bytes) -> Floats:
    """8 groups of 32: bytes d 2, grid low 64, grid high 8, signs 32, scales 4."""
    words = _numbers(blocks[:, 2:66], in_order(blocks[:, 66:74], 1))
    scales = fp16(blocks, 0) * _odd(in_order(blocks[:, 106:], 4))
    return _product(scales, grid_of(TensorType.IQ3_S)[words], signs(blocks[:, 74:106]))


def iq1_s(blocks: Bytes) -> Floats:
    """8 groups of 32: bytes d 2, grid low 32, then 16 bits for each group.

    Those are the high 3 bits of four grid numbers, a scale of 3 bits and the sign of the shift.
    """
    fields = uint16(blocks[:, 34:])  # [blocks, 8]
    words = _numbers(blocks[:, 2:34], fields[..., None] >> _FIELD_SHIFTS & 7)
    scales = fp16(blocks, 0) * _odd(fields >> 12 & 7)
    values = grid_of(TensorType.IQ1_S)[words].reshape(-1, 8, 32)
    return _product(scales, values + _shift(fields >> 15)[..., None])


def iq1_m(blocks: Bytes) -> Floats:
    """16 groups of 16: bytes grid low 32, high 16, scales 8.

    A nibble of `high` serves 8 weights: 3 bits of the grid number and the sign of the shift. The
    four 16-bit words of `scales` hold 4 x 3 bits each, and in their top nibbles the fp16 d.
    """
    nibbles = in_order(blocks[:, 32:48], 4)  # [blocks, 32]
    words = _numbers(blocks[:, :32], nibbles & 7)
    packed = uint16(blocks[:, 48:])
    tops = (packed >> 12).astype(np.uint16) << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(tops, axis=1, keepdims=True).view(np.float16).astype(np.float32)
    fields = packed[..., None] >> _FIELD_SHIFTS & 7
    values = grid_of(TensorType.IQ1_M)[words] + _shift(nibbles >> 3)[..., None]
    return _product(d * _odd(fields.reshape(-1, 16)), values)


def _numbers(low: Bytes, high: NDArray[np.integer]) -> NDArray[np.integer]:
    """Grid numbers: [blocks, n] low bytes and the bits above them."""
    return low | high.astype(np.uint16).reshape(low.shape) << 8


def _half_scale(blocks: Bytes, numbers: NDArray[np.integer], factor: float) -> Floats:
    """[blocks, n]: d times (number + 1/2) times `factor`, in this order."""
    d = fp16(blocks, 0)
    return d * (np.float32(0.5) + numbers.astype(np.float32)) * np.float32(factor)


def _odd(numbers: NDArray[np.integer]) -> Floats:
    return (2 * numbers + 1).astype(np.float32)


def _shift(negative: NDArray[np.integer]) -> Floats:
    return np.where(negative != 0, -_DELTA, _DELTA)


def _iq4_values(entries: Bytes) -> Floats:
    return np.array(IQ4_VALUES, np.float32)[entries]


def _product(scales: Floats, values: Floats, negative: Floats | None = None) -> Floats:
    """[blocks, groups] scales times values in their order, then the signs."""
    product = scales[..., None] * values.reshape(*scales.shape, -1)
    if negative is not None:
        product *= negative.reshape(product.shape)
    return product.reshape(len(scales), -1)
