"""Writes a GGUF model from another, one tensor at a time; what changes is the caller's to say."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.testing.model_files import ALIGNMENT, Pair, Row, gguf_bytes
from octavo.testing.quantise import Encoded
from octavo.weights.encodings import GGML_TYPES, TensorType
from octavo.weights.gguf_metadata import Cursor, ValueKind
from octavo.weights.mapped import MappedFile

FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "BF16": 32,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q8_0": 7,
    "Q2_K": 10,
    "Q3_K": 12,
    "Q4_K": 15,
    "Q5_K": 17,
    "Q6_K": 18,
    "IQ4_NL": 25,
    "IQ4_XS": 30,
    "MXFP4": 38,
}
"""Weight type -> number of `general.file_type`, what most matrices are (GGUF format document)."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor to come. shape: row-major. encoded: called when it is its turn."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    encoded: Callable[[], Encoded]


def stored_pairs(source: Path, changes: Mapping[str, tuple[int, Any]]) -> list[Pair]:
    """The pairs as they are in the file, kinds included, which `GGUFFile.metadata` forgets.

    changes: key -> (kind, value) instead of what the file has; keys that it lacks are not added.
    The alignment becomes that of `write_planned`.
    """
    changes = {"general.alignment": (ValueKind.U32, ALIGNMENT), **changes}
    file = MappedFile(source)
    cursor = Cursor(file)
    cursor.skip(16, "magic, version and tensor count")
    pairs = []
    for _ in range(cursor.u64("the metadata count")):
        key = cursor.string("a key")
        kind = cursor.kind(key)
        value = cursor.value(kind, key)
        pairs.append(Pair(key, *changes.get(key, (kind, value))))
    file.close()
    return pairs


def write_planned(target: Path, pairs: Sequence[Pair], tensors: Sequence[Planned]) -> None:
    """Write `target`, which appears whole or not at all.

    Raises what the tensors' `encoded` raise.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            file.write(gguf_bytes(pairs, _table(tensors)))
            for tensor in tensors:  # one at a time: all of them as F32 may not fit in memory
                data = tensor.encoded().data
                file.write(data.data)
                file.write(bytes(-data.size % ALIGNMENT))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _table(tensors: Sequence[Planned]) -> list[Row]:
    numbers = {kind: number for number, kind in GGML_TYPES.items()}
    rows, offset = [], 0
    for tensor in tensors:
        rows.append(Row(tensor.name, tensor.shape[::-1], numbers[tensor.type], offset))
        size_bytes = tensor.type.size_bytes(math.prod(tensor.shape))
        offset += size_bytes + -size_bytes % ALIGNMENT
    return rows
