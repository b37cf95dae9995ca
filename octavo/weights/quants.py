"""Decodes tensor bytes to float32 with NumPy: the definition of right for every faster kernel.

Block layouts and the order of the products are GGML's. The types of 32 weights a block that hold
plain integers are here; `quants_k` has the super-blocks, `quants_i` the types with tables.
"""

from collections.abc import Callable, Mapping

import numpy as np

from octavo.weights import quants_i, quants_k
from octavo.weights.block_fields import Bytes, Floats, fp16, in_order, planes
from octavo.weights.encodings import TensorType

MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""What the 4 bits of MXFP4 mean: E2M1 numbers, doubled."""

_CHUNK_ELEMENTS = 1 << 20  # decoded at a time, so that what lies between stays small


def _f32(data: Bytes) -> Floats:
    return data.view("<f4")


def _f16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def _bf16(data: Bytes) -> Floats:
    # A bfloat16 is the upper half of the float32 with the same value.
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """[blocks, 16] bytes -> [blocks, 32] values 0..15, low nibbles first."""
    return planes(packed, 4).reshape(-1, 32).astype(np.float32)


def _five_bits(high: Bytes, low: Bytes) -> Floats:
    """[blocks, 4] fifth bits, element i in bit i, and [blocks, 16] nibbles -> [blocks, 32]."""
    return (planes(low, 4).reshape(-1, 32) | in_order(high, 1) << 4).astype(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    """Bytes: d 2, nibbles 16, with 8 added."""
    return (_nibbles(blocks[:, 2:]) - np.float32(8)) * fp16(blocks, 0)


def _q4_1(blocks: Bytes) -> Floats:
    """Bytes: d 2, minimum 2, nibbles 16."""
    return _nibbles(blocks[:, 4:]) * fp16(blocks, 0) + fp16(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    """Bytes: d 2, fifth bits 4, nibbles 16, with 16 added."""
    return (_five_bits(blocks[:, 2:6], blocks[:, 6:]) - np.float32(16)) * fp16(blocks, 0)


def _q5_1(blocks: Bytes) -> Floats:
    """Bytes: d 2, minimum 2, fifth bits 4, nibbles 16."""
    return _five_bits(blocks[:, 4:8], blocks[:, 8:]) * fp16(blocks, 0) + fp16(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    """Bytes: d 2, int8 32."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * fp16(blocks, 0)


def _mxfp4(blocks: Bytes) -> Floats:
    """Bytes: exponent 1, entries of MXFP4_VALUES 16 (OCP Microscaling Formats 1.0)."""
    values = np.array(MXFP4_VALUES, np.float32)[planes(blocks[:, 1:], 4).reshape(-1, 32)]
    return mxfp4_scale(blocks[:, :1]) * values


def mxfp4_scale(exponents: Bytes) -> Floats:
    """2^(exponent - 128): half of what E8M0 says, as the values are doubled.

    GGML gives 255, E8M0's NaN, its power of two like any other.
    """
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 128)


_PLAIN: Mapping[TensorType, Callable[[Bytes], Floats]] = {
    TensorType.F32: _f32,
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
}

_BLOCKS: Mapping[TensorType, Callable[[Bytes], Floats]] = {
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.MXFP4: _mxfp4,
    TensorType.Q2_K: quants_k.q2_k,
    TensorType.Q3_K: quants_k.q3_k,
    TensorType.Q4_K: quants_k.q4_k,
    TensorType.Q5_K: quants_k.q5_k,
    TensorType.Q6_K: quants_k.q6_k,
    TensorType.IQ4_NL: quants_i.iq4_nl,
    TensorType.IQ4_XS: quants_i.iq4_xs,
    TensorType.IQ2_XXS: quants_i.iq2_xxs,
    TensorType.IQ2_XS: quants_i.iq2_xs,
    TensorType.IQ2_S: quants_i.iq2_s,
    TensorType.IQ3_XXS: quants_i.iq3_xxs,
    TensorType.IQ3_S: quants_i.iq3_s,
    TensorType.IQ1_S: quants_i.iq1_s,
    TensorType.IQ1_M: quants_i.iq1_m,
}
"""Type -> function from [blocks, block_bytes] to [blocks, block_size]."""

DECODED_TYPES: frozenset[TensorType] = frozenset((*_PLAIN, *_BLOCKS))
"""The encodings that `decode` reads; every other type is refused by name before."""


def decode(kind: TensorType, data: Bytes, shape: tuple[int, ...]) -> Floats:
    """The values of a row-major tensor of `shape`; its last dimension is whole blocks.

    data: all its bytes, contiguous; `kind` is one of DECODED_TYPES. F32 is a view of `data` (so
    read-only if the file is mapped), the others are new arrays.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # infinite scales are the file's business
        if kind in _PLAIN:
            return _PLAIN[kind](data).reshape(shape)
        return _decode_blocks(kind, data.reshape(-1, kind.block_bytes)).reshape(shape)


def _decode_blocks(kind: TensorType, blocks: Bytes) -> Floats:
    """A part at a time: [blocks, block_bytes] -> [blocks, block_size]."""
    values = np.empty((len(blocks), kind.block_size), np.float32)
    step = _CHUNK_ELEMENTS // kind.block_size
    for start in range(0, len(blocks), step):
        values[start : start + step] = _BLOCKS[kind](blocks[start : start + step])
    return values
