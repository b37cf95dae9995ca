"""Checks SentencePiece's precompiled normaliser, whose reader in the library trusts it.

Source: the format of SentencePiece's `precompiled_charsmap` (little-endian): the size in bytes of a
double array (Darts-clone), the array of 32-bit units, then replacements that end with a zero byte.
"""

import numpy as np

from octavo.errors import ModelFileError

HAS_LEAF = 1 << 8
BLOCK = 256  # a unit's children lie in the block of 256 that its offset names


def check_charsmap(data: bytes) -> None:
    """Raises ModelFileError unless every walk through the array stays inside it and ends at a
    replacement of whole characters.
    """
    if not data:
        return
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 4 or size < 4 * BLOCK or 4 + size > len(data):
        raise _broken("its double array does not fit")
    units = np.frombuffer(data, "<u4", size // 4, 4)
    rest = np.frombuffer(data, np.uint8, offset=4 + size)
    try:
        replacements = rest.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        raise _broken("its replacements are no UTF-8") from None
    if replacements and not replacements.endswith("\0"):
        raise _broken("its last replacement does not end")
    # offset = the unit's bits from 10 on, times 256 where bit 9 is set.
    offsets = (units >> 10).astype(np.int64) << np.where(units & (1 << 9), 8, 0)
    inner = units >> 31 == 0  # others are values
    children = np.arange(len(units)) ^ offsets
    if not inner[0]:  # where each walk begins, whatever the unit says
        raise _broken("its root is a value")
    if (inner & ((children | (BLOCK - 1)) >= len(units))).any():
        raise _broken("its double array points out of itself")
    leaves = children[inner & (units & HAS_LEAF != 0)]
    values = units[leaves] & 0x7FFFFFFF
    if (values >= len(rest)).any() or (rest[values] >> 6 == 0b10).any():
        raise _broken("it points out of its replacements")


def _broken(what: str) -> ModelFileError:
    return ModelFileError(f"the precompiled charsmap of the vocabulary is broken: {what}")
