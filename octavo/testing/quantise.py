"""Encodes float32 arrays into the tensor types that Octavo decodes, rounding to nearest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from octavo.weights.encodings import TensorType

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


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
    return Encoded(kind, values.shape, encoder(flat).reshape(-1))


def quantise_q4_0(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 18]. The value of largest magnitude becomes -8 times the scale."""
    blocks = values.reshape(-1, 32)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    scale = (largest / np.float32(-8)).astype("<f2")
    steps = np.rint(_divide(blocks, scale)) + 8
    return np.concatenate((scale.view(np.uint8), _pack(steps)), axis=1)


def quantise_q4_1(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 20]. Steps 0..15 from the minimum to the maximum."""
    blocks = values.reshape(-1, 32)
    low = blocks.min(axis=1, keepdims=True).astype("<f2")
    span = blocks.max(axis=1, keepdims=True) - low.astype(np.float32)
    scale = (span / np.float32(15)).astype("<f2")
    steps = np.rint(_divide(blocks - low.astype(np.float32), scale))
    return np.concatenate((scale.view(np.uint8), low.view(np.uint8), _pack(steps)), axis=1)


def quantise_q8_0(values: Floats) -> Bytes:
    """[blocks * 32] -> [blocks, 34]. Steps -127..127, symmetric."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)).astype("<f2")
    steps = np.rint(_divide(blocks, scale)).clip(-127, 127).astype(np.int8)
    return np.concatenate((scale.view(np.uint8), steps.view(np.uint8)), axis=1)


def _divide(blocks: Floats, scale: NDArray[np.float16]) -> Floats:
    """By the scale as stored; blocks whose scale is zero become zeros."""
    divisor = scale.astype(np.float32)
    return np.divide(blocks, divisor, out=np.zeros_like(blocks), where=divisor != 0)


def _pack(steps: Floats) -> Bytes:
    """[blocks, 32] steps, clipped to 0..15 -> [blocks, 16] bytes, first half in the low nibbles."""
    nibbles = steps.clip(0, 15).astype(np.uint8)
    return nibbles[:, :16] | nibbles[:, 16:] << np.uint8(4)


_ENCODERS: Mapping[TensorType, Callable[[Floats], Bytes]] = {
    TensorType.F32: lambda values: values.astype("<f4").view(np.uint8),
    TensorType.F16: lambda values: values.astype("<f2").view(np.uint8),
    TensorType.BF16: lambda values: values.astype(ml_dtypes.bfloat16).view(np.uint8),
    TensorType.Q4_0: quantise_q4_0,
    TensorType.Q4_1: quantise_q4_1,
    TensorType.Q8_0: quantise_q8_0,
}
