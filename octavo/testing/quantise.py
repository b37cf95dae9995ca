"""Encodes float32 arrays into the tensor types that Octavo multiplies, rounding to nearest.

The blocks are valid and sensible, not searched for as llama.cpp's are. `quantise_k` has the
super-blocks of 256 weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from octavo.testing.block_packing import (
    Bytes,
    Floats,
    divide,
    join,
    largest,
    nearest,
    pack_in_order,
    pack_planes,
)
from octavo.testing.quantise_k import (
    iq4_scales,
    quantise_iq4_xs,
    quantise_q2_k,
    quantise_q3_k,
    quantise_q4_k,
    quantise_q5_k,
    quantise_q6_k,
)
from octavo.weights.encodings import TensorType
from octavo.weights.quants import MXFP4_VALUES, mxfp4_scale
from octavo.weights.quants_i import IQ4_VALUES

_CHUNK_ELEMENTS = 1 << 20  # encoded at a time, so that what lies between stays small


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor as it lies in a file. shape: row-major. data: [bytes]."""

    type: TensorType
    shape: tuple[int, ...]
    data: Bytes


def encode(values: Floats, kind: TensorType) -> Encoded:
    """Encode a tensor, whose rows must be whole blocks.

    Raises KeyError for a type without an encoder, ValueError for rows that blocks do not divide.
    """
    encoder = _ENCODERS[kind]
    if values.ndim and values.shape[-1] % kind.block_size:
        raise ValueError(f"rows of {values.shape[-1]} are not whole blocks of {kind.block_size}")
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    data = np.empty(kind.size_bytes(flat.size), np.uint8)
    for start in range(0, flat.size, _CHUNK_ELEMENTS):
        part = encoder(flat[start : start + _CHUNK_ELEMENTS]).reshape(-1)
        first = kind.size_bytes(start)
        data[first : first + part.size] = part
    return Encoded(kind, values.shape, data)


def quantise_q4_0(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 18]. The value of largest magnitude becomes -8 times the scale."""
    scale, steps = _signed_steps(values.reshape(-1, 32), 8)
    return join(scale, _pack(steps))


def quantise_q4_1(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 20]. Steps 0..15 from the minimum to the maximum."""
    scale, low, steps = _steps_from_minimum(values.reshape(-1, 32), 15)
    return join(scale, low, _pack(steps))


def quantise_q5_0(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 22]. As Q4_0 with -16."""
    scale, steps = _signed_steps(values.reshape(-1, 32), 16)
    return join(scale, pack_in_order(steps >> 4, 1), _pack(steps & 15))


def quantise_q5_1(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 24]. As Q4_1 with steps 0..31."""
    scale, low, steps = _steps_from_minimum(values.reshape(-1, 32), 31)
    return join(scale, low, pack_in_order(steps >> 4, 1), _pack(steps & 15))


def quantise_q8_0(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 34]. Steps -127..127, symmetric."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)).astype("<f2")
    return join(scale, np.rint(divide(blocks, scale)).clip(-127, 127).astype(np.int8))


def quantise_iq4_nl(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 18]. The scale by least squares, then the table's nearest."""
    blocks = values.reshape(-1, 32)
    scale = iq4_scales(blocks)[:, None].astype("<f2")
    return join(scale, _pack(nearest(divide(blocks, scale), IQ4_VALUES)))


def quantise_mxfp4(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 17].

    The exponent is the least with which the largest magnitude still rounds to 6, the largest
    number of E2M1: 7 times the scale at most.
    """
    blocks = values.reshape(-1, 32)
    mantissa, exponent = np.frexp(np.abs(blocks).max(axis=1, keepdims=True) / np.float32(7))
    exponent -= mantissa == 0.5  # frexp gives a power of two the exponent above
    biased = np.where(mantissa == 0, 0, exponent + 127).clip(0, 254).astype(np.uint8)
    return join(biased, _pack(nearest(divide(blocks, mxfp4_scale(biased)), MXFP4_VALUES)))


def _signed_steps(blocks: Floats, half: int) -> tuple[NDArray[np.float16], Bytes]:
    """Scales, and steps 0..2 half - 1 of which `half` means zero."""
    scale = (largest(blocks) / np.float32(-half)).astype("<f2")
    steps = np.rint(divide(blocks, scale)) + half
    return scale, steps.clip(0, 2 * half - 1).astype(np.uint8)


def _steps_from_minimum(
    blocks: Floats, top: int
) -> tuple[NDArray[np.float16], NDArray[np.float16], Bytes]:
    """Scales, minima, and steps 0..top."""
    low = blocks.min(axis=1, keepdims=True).astype("<f2")
    span = blocks.max(axis=1, keepdims=True) - low.astype(np.float32)
    scale = (span / np.float32(top)).astype("<f2")
    steps = np.rint(divide(blocks - low.astype(np.float32), scale))
    return scale, low, steps.clip(0, top).astype(np.uint8)


def _pack(steps: NDArray[np.integer]) -> Bytes:
    """[blocks, 32] of 4 bits -> [blocks, 16] bytes, first half in the low nibbles."""
    return pack_planes(steps.reshape(-1, 2, 16), 4)


_ENCODERS: Mapping[TensorType, Callable[[Floats], Bytes]] = {
    TensorType.F32: lambda values: values.astype("<f4").view(np.uint8),
    TensorType.F16: lambda values: values.astype("<f2").view(np.uint8),
    TensorType.BF16: lambda values: values.astype(ml_dtypes.bfloat16).view(np.uint8),
    TensorType.Q4_0: quantise_q4_0,
    TensorType.Q4_1: quantise_q4_1,
    TensorType.Q5_0: quantise_q5_0,
    TensorType.Q5_1: quantise_q5_1,
    TensorType.Q8_0: quantise_q8_0,
    TensorType.Q2_K: quantise_q2_k,
    TensorType.Q3_K: quantise_q3_k,
    TensorType.Q4_K: quantise_q4_k,
    TensorType.Q5_K: quantise_q5_k,
    TensorType.Q6_K: quantise_q6_k,
    TensorType.IQ4_NL: quantise_iq4_nl,
    TensorType.IQ4_XS: quantise_iq4_xs,
    TensorType.MXFP4: quantise_mxfp4,
}

ENCODED_TYPES: frozenset[TensorType] = frozenset(_ENCODERS)
"""The types that `encode` writes: all that are decoded but IQ1 to IQ3."""
