"""Decodes tensor bytes to float32 with NumPy: the definition of right for every faster kernel.

Block layouts are GGML's: little-endian, scales in fp16, 32 elements a block. In the 4-bit types
byte i holds element i in its low nibble and element i + 16 in its high nibble.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from octavo.weights.encodings import TensorType

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def _f32(data: Bytes) -> Floats:
    return data.view("<f4")


def _f16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def _bf16(data: Bytes) -> Floats:
    # A bfloat16 is the upper half of the float32 with the same value.
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """[blocks, 16] bytes -> [blocks, 32] values 0..15, low nibbles first."""
    values = np.empty((len(packed), 32), np.float32)
    values[:, :16] = packed & 15
    values[:, 16:] = packed >> 4
    return values


def _scale(blocks: Bytes, start: int) -> Floats:
    """The fp16 at byte `start` of each block: [blocks, 1]."""
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def _q4_0(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 18)
    values = _nibbles(blocks[:, 2:])
    values -= 8
    values *= _scale(blocks, 0)
    return values


def _q4_1(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 20)
    values = _nibbles(blocks[:, 4:])
    values *= _scale(blocks, 0)
    values += _scale(blocks, 2)
    return values


def _q8_0(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 34)
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    values *= _scale(blocks, 0)
    return values


_DECODERS: Mapping[TensorType, Callable[[Bytes], Floats]] = {
    TensorType.F32: _f32,
    TensorType.F16: _f16,
    TensorType.BF16: _bf16,
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q8_0: _q8_0,
}

DECODED_TYPES: frozenset[TensorType] = frozenset(_DECODERS)
"""The encodings that `decode` reads; every other type is refused by name before."""


def decode(kind: TensorType, data: Bytes, shape: tuple[int, ...]) -> Floats:
    """The values of a row-major tensor of `shape`; its last dimension is whole blocks.

    data: all its bytes, contiguous; `kind` is one of DECODED_TYPES. F32 is a view of `data` (so
    read-only if the file is mapped), the others are new arrays.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # infinite scales are the file's business
        return _DECODERS[kind](data).reshape(shape)
