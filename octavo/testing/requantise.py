"""Re-encodes the matrices of a GGUF file: one model's weights in another tensor type."""

import math
import os
from pathlib import Path
from typing import Any

from octavo.testing.model_files import ALIGNMENT, Pair, Row, gguf_bytes
from octavo.testing.quantise import Encoded, encode
from octavo.weights.checkpoint import WeightTensor
from octavo.weights.encodings import GGML_TYPES, TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import Cursor, ValueKind
from octavo.weights.mapped import MappedFile, StoredTensor

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}
"""Weight type -> number of `general.file_type`, what most matrices are (GGUF format document)."""


def reencode(source: Path, target: Path, weight_type: str) -> None:
    """Write `target`: the GGUF model `source` (of one part) with every matrix in `weight_type`.

    weight_type: one of FILE_TYPES. Metadata (but `general.file_type`), vectors such as norms, and
    matrices that have the type already are kept byte for byte. Others are decoded to float32 and
    rounded to nearest, so an F32 file holds exactly what the source means. `target` appears whole.

    Raises KeyError for another type, ModelFileError for a file that cannot be read or decoded,
    ValueError for a matrix whose rows are not whole blocks of the type.
    """
    kind, file_type = TensorType[weight_type], FILE_TYPES[weight_type]
    tensors = list(read_gguf(source).tensors.values())
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            file.write(gguf_bytes(_metadata(source, file_type), _table(tensors, kind)))
            for tensor in tensors:  # one at a time: all of them as F32 may not fit in memory
                data = _encode(tensor, kind).data
                file.write(data.data)
                file.write(bytes(-data.size % ALIGNMENT))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _metadata(source: Path, file_type: int) -> list[Pair]:
    """The pairs as they are in the file, kinds included, which `GGUFFile.metadata` forgets."""
    file = MappedFile(source)
    cursor = Cursor(file)
    cursor.skip(16, "magic, version and tensor count")
    changed: dict[str, tuple[int, Any]] = {
        "general.file_type": (ValueKind.U32, file_type),
        "general.alignment": (ValueKind.U32, ALIGNMENT),
    }
    pairs = []
    for _ in range(cursor.u64("the metadata count")):
        key = cursor.string("a key")
        kind = cursor.kind(key)
        value = cursor.value(kind, key)
        pairs.append(Pair(key, *changed.get(key, (kind, value))))
    file.close()
    return pairs


def _table(tensors: list[StoredTensor], kind: TensorType) -> list[Row]:
    numbers = {kind: number for number, kind in GGML_TYPES.items()}
    rows, offset = [], 0
    for tensor in tensors:
        new = _new_type(tensor, kind)
        rows.append(Row(tensor.name, tensor.shape[::-1], numbers[new], offset))
        size_bytes = new.size_bytes(math.prod(tensor.shape))
        offset += size_bytes + -size_bytes % ALIGNMENT
    return rows


def _new_type(tensor: StoredTensor, kind: TensorType) -> TensorType:
    return kind if len(tensor.shape) > 1 else tensor.type


def _encode(tensor: StoredTensor, kind: TensorType) -> Encoded:
    """Rows stay in stored order: it does not depend on the type."""
    if _new_type(tensor, kind) is tensor.type:
        return Encoded(tensor.type, tensor.shape, tensor.data)
    return encode(WeightTensor(tensor.name, tensor).float32(), kind)
