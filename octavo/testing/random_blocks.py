"""Random blocks of every quantised type: any bits, with scales that give sensible values."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from octavo.testing.quantise import Encoded
from octavo.weights.encodings import TensorType
from octavo.weights.quants import decode

Bytes = NDArray[np.uint8]

_T = TensorType

SCALE_OFFSETS: Mapping[TensorType, tuple[int, ...]] = {
    **dict.fromkeys((_T.Q4_0, _T.Q5_0, _T.Q8_0, _T.IQ4_NL, _T.IQ4_XS), (0,)),
    **dict.fromkeys((_T.Q4_1, _T.Q5_1, _T.Q4_K, _T.Q5_K), (0, 2)),
    **dict.fromkeys((_T.IQ2_XXS, _T.IQ2_XS, _T.IQ2_S, _T.IQ3_XXS, _T.IQ3_S, _T.IQ1_S), (0,)),
    _T.Q2_K: (80, 82),
    _T.Q3_K: (108,),
    _T.Q6_K: (208,),
}
"""Type -> the bytes of a block where fp16 scales and minima begin. IQ1_M and MXFP4 differ."""


def random_blocks(kind: TensorType, shape: tuple[int, ...], seed: int, scale: float) -> Encoded:
    """A tensor of valid blocks of `kind`, a quantised type, of rows that are whole blocks.

    Every bit but those of the blocks' scales is random. scale: about the standard deviation of the
    values that a block of average scales decodes to; within a factor of two, by block.
    """
    random = np.random.default_rng(seed)
    count = math.prod(shape) // kind.block_size
    blocks = random.integers(0, 256, (count, kind.block_bytes), np.uint8)
    set_scales = _SETTERS.get(kind, _set_fp16)
    set_scales(kind, blocks, np.ones(count, np.float32))
    ones = decode(kind, blocks.reshape(-1), (blocks.shape[0] * kind.block_size,))
    unit = scale / float(np.std(ones))
    set_scales(kind, blocks, random.uniform(0.5, 1.5, count).astype(np.float32) * np.float32(unit))
    return Encoded(kind, shape, blocks.reshape(-1))


def _set_fp16(kind: TensorType, blocks: Bytes, scales: NDArray[np.float32]) -> None:
    for offset in SCALE_OFFSETS[kind]:
        blocks[:, offset : offset + 2] = scales.astype("<f2")[:, None].view(np.uint8)


def _set_iq1_m(kind: TensorType, blocks: Bytes, scales: NDArray[np.float32]) -> None:
    """The four nibbles of the fp16 are the top nibbles of bytes 49, 51, 53, 55."""
    nibbles = scales.astype("<f2").view("<u2")[:, None] >> np.arange(0, 16, 4, dtype=np.uint16) & 15
    blocks[:, 49::2] = blocks[:, 49::2] & 15 | nibbles.astype(np.uint8) << 4


def _set_mxfp4(kind: TensorType, blocks: Bytes, scales: NDArray[np.float32]) -> None:
    """Only powers of two: the nearest by logarithm."""
    blocks[:, 0] = np.rint(128 + np.log2(scales)).clip(0, 254)


_SETTERS: Mapping[TensorType, Callable[[TensorType, Bytes, NDArray[np.float32]], None]] = {
    TensorType.IQ1_M: _set_iq1_m,
    TensorType.MXFP4: _set_mxfp4,
}
