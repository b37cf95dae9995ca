"""Decodes the K types: super-blocks of 256 weights, whose sub-blocks have scales of few bits.

Each function takes [blocks, block_bytes] and gives [blocks, 256], products in the order of GGML's
definition: a sub-block's scale is d times its integer, rounded to float32, then multiplied by the
weights' integers.
"""

import numpy as np
from numpy.typing import NDArray

from octavo.weights.block_fields import Bytes, Floats, fp16, planes, scales_and_minima


def q2_k(blocks: Bytes) -> Floats:
    """16 sub-blocks of 16 weights of 2 bits: bytes scales 16, weights 64, d 2, dmin 2."""
    scales = fp16(blocks, 80) * (blocks[:, :16] & 15)
    minima = fp16(blocks, 82) * (blocks[:, :16] >> 4)
    steps = planes(blocks[:, 16:80].reshape(-1, 2, 32), 2)
    return _affine(scales, steps, minima)


def q3_k(blocks: Bytes) -> Floats:
    """16 sub-blocks of 16 weights of 3 bits: bytes high bits 32, low bits 64, scales 12, d 2.

    Scales are 6 bits with 32 added: low nibbles in 8 bytes, the upper two bits in 4.
    """
    low, high = planes(blocks[:, 96:104], 4), planes(blocks[:, 104:108], 2)
    codes = low.reshape(-1, 16) | high.reshape(-1, 16) << 4
    steps = planes(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 8, 32)
    steps |= planes(blocks[:, :32], 1) << 2
    return _linear(fp16(blocks, 108) * _signed(codes, 32), _signed(steps, 4))


def q4_k(blocks: Bytes) -> Floats:
    """8 sub-blocks of 32 weights of 4 bits: bytes d 2, dmin 2, scales and minima 12, rest 128."""
    scales, minima = scales_and_minima(blocks[:, 4:16])
    steps = planes(blocks[:, 16:].reshape(-1, 4, 32), 4)
    return _affine(fp16(blocks, 0) * scales, steps, fp16(blocks, 2) * minima)


def q5_k(blocks: Bytes) -> Floats:
    """As Q4_K, of 5 bits: the fifth bits are 32 bytes before the others."""
    scales, minima = scales_and_minima(blocks[:, 4:16])
    steps = planes(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    steps |= planes(blocks[:, 16:48], 1) << 4
    return _affine(fp16(blocks, 0) * scales, steps, fp16(blocks, 2) * minima)


def q6_k(blocks: Bytes) -> Floats:
    """16 sub-blocks of 16 weights of 6 bits: bytes low 128, high 64, scales (int8) 16, d 2."""
    steps = planes(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 2, 4, 32)
    steps |= planes(blocks[:, 128:192].reshape(-1, 2, 32), 2) << 4
    scales = fp16(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return _linear(scales, _signed(steps, 32))


def _signed(codes: NDArray[np.integer], offset: int) -> Floats:
    """Numbers stored with `offset` added."""
    return codes.astype(np.float32) - np.float32(offset)


def _linear(scales: Floats, steps: Floats) -> Floats:
    """[blocks, sub-blocks] scales of the weights' steps, which keep their order."""
    return (scales[..., None] * steps.reshape(*scales.shape, -1)).reshape(-1, 256)


def _affine(scales: Floats, steps: Bytes, minima: Floats) -> Floats:
    values = _linear(scales, steps.astype(np.float32)).reshape(*minima.shape, -1)
    values -= minima[..., None]
    return values.reshape(-1, 256)
