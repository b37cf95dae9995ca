"""Takes blocks of quantised weights apart: fp16 scales, planes of few bits, and signs.

Everything in GGML's blocks is little-endian. All functions work on many blocks at once: the first
dimension counts blocks.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def fp16(blocks: Bytes, start: int) -> Floats:
    """The fp16 at byte `start` of each block: [blocks, 1]."""
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def uint16(part: Bytes) -> NDArray[np.uint16]:
    """[blocks, 2 n] bytes -> [blocks, n] numbers."""
    return np.ascontiguousarray(part).view("<u2")


def uint32(part: Bytes) -> NDArray[np.uint32]:
    """[blocks, 4 n] bytes -> [blocks, n] numbers."""
    return np.ascontiguousarray(part).view("<u4")


def planes(packed: Bytes, bits: int) -> Bytes:
    """Bytes cut into fields of `bits` bits: [..., n] -> [..., 8 / bits, n], lowest bits first.

    GGML spreads neighbours over bytes: field p of byte i is element p * n + i of its group.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return packed[..., None, :] >> shifts & np.uint8((1 << bits) - 1)


def in_order(packed: Bytes, bits: int) -> Bytes:
    """The same cut with neighbours in one byte: [blocks, n] -> [blocks, n * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return fields.reshape(len(packed), -1)


def scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 8 scales and 8 minima of 6 bits in the 12 bytes of Q4_K and Q5_K: [blocks, 8] each.

    Bytes 0-3 hold scales 0-3 in six bits and the top two of scales 4-7, bytes 4-7 the same of the
    minima; bytes 8-11 hold the low four of scales 4-7 (low nibble) and of minima 4-7 (high).
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), axis=1)
    minima = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), axis=1)
    return scales, minima


def signs(numbers: NDArray[np.integer]) -> Floats:
    """Of bytes: a set bit is -1, a clear one 1, lowest bit first: [...] -> [..., 8]."""
    table: Floats = _sign_table()[numbers]
    return table


def even_signs(numbers: NDArray[np.integer]) -> Floats:
    """As `signs`, of 7 bits: the eighth sign makes the count of negatives even."""
    numbers = numbers.astype(np.uint8) & np.uint8(127)
    folded = numbers ^ numbers >> 4
    folded ^= folded >> 2
    folded ^= folded >> 1
    return signs(numbers | folded << 7)


@cache
def _sign_table() -> Floats:
    """[256, 8], made at first use."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    table = 1 - 2 * bits.astype(np.float32)
    table.flags.writeable = False
    return table
