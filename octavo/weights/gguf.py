"""Reads GGUF files (versions 2 and 3, single or split): metadata and a table of mapped tensors.

Source: the GGUF specification. Files are strangers': every count, length, shape and offset is
checked before it is used.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from octavo.errors import ModelFileError
from octavo.weights.encodings import GGML_TYPES, REMOVED_GGML_TYPES, TensorType
from octavo.weights.gguf_metadata import Cursor, read_pairs
from octavo.weights.mapped import MappedFile, StoredTensor, shown

VERSIONS = (2, 3)
MAX_PAIRS = 1 << 14
MAX_TENSORS = 1 << 16  # experts are stacked: real files have a few thousand
MAX_DIMENSIONS = 4
MIN_PAIR_BYTES = 8 + 1 + 4 + 1  # key length, one letter, type, one byte
MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name length, one letter, dimensions, type, offset
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20

_FIRST_PAIRS = 16  # among which `gguf_architecture` looks
_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """One file, or all parts of a split one.

    metadata: of the first part, key -> int, float, bool, str or GGUFArray. tensors: by GGUF name.
    """

    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]
    files: tuple[MappedFile, ...]

    def close(self) -> None:
        """Let the mappings go; see `MappedFile.close`."""
        for file in self.files:
            file.close()


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the tensor table. start: bytes from the beginning of the file."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    start: int
    end: int


def read_gguf(path: Path) -> GGUFFile:
    """Open a GGUF file; for the first part of a split file, all its parts.

    Raises ModelFileError that names the file and the fault.
    """
    first = _read_one(path)
    count = first.metadata.get("split.count", 1)
    if type(count) is not int or count < 0:
        raise first.files[0].broken("'split.count' must be a number")
    return first if count <= 1 else _join(path, first, count)


def gguf_architecture(path: Path) -> str | None:
    """`general.architecture`, which files have among their first keys; the rest is not read.

    None: the file has none there, or is no GGUF file.
    """
    try:
        cursor = Cursor(MappedFile(path))
        _, pair_count = _read_header(cursor)
        for index in range(min(pair_count, _FIRST_PAIRS)):
            key = cursor.string(f"metadata key {index}")
            value = cursor.value(cursor.kind(key), key)
            if key == "general.architecture":
                return value if isinstance(value, str) else None
    except ModelFileError:
        pass
    return None


def _read_one(path: Path) -> GGUFFile:
    file = MappedFile(path)
    cursor = Cursor(file)
    tensor_count, pair_count = _read_header(cursor)
    metadata = read_pairs(cursor, pair_count)
    alignment = _alignment(file, metadata)
    infos = [_read_info(cursor, index) for index in range(tensor_count)]
    data_start = -(-cursor.position // alignment) * alignment
    rows = [_place(file, info, data_start, alignment) for info in infos]
    _check_rows(file, rows)
    tensors = {row.name: _stored(file, row) for row in rows}
    return GGUFFile(metadata, tensors, (file,))


def _read_header(cursor: Cursor) -> tuple[int, int]:
    """The counts of tensors and of metadata pairs."""
    file = cursor.file
    magic = file.data[:4]
    if magic != b"GGUF"[: len(magic)]:
        raise file.broken(f"is not a GGUF file: it begins with {magic!r}")
    cursor.skip(4, "the magic")
    version = cursor.u32("the version")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *VERSIONS):
        raise file.broken("is a big-endian GGUF file; only little-endian files are read")
    if version not in VERSIONS:
        raise file.broken(f"is GGUF version {version}; versions 2 and 3 are read")
    tensor_count = cursor.u64("the tensor count")
    pair_count = cursor.u64("the metadata count")
    room = cursor.end - cursor.position
    if tensor_count > min(MAX_TENSORS, room // MIN_TENSOR_BYTES):
        raise file.broken(f"the tensor count {tensor_count} is too large for this file")
    if pair_count > min(MAX_PAIRS, room // MIN_PAIR_BYTES):
        raise file.broken(f"the metadata count {pair_count} is too large for this file")
    return tensor_count, pair_count


def _alignment(file: MappedFile, metadata: dict[str, Any]) -> int:
    """Bytes that every tensor offset is a multiple of."""
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise file.broken("'general.alignment' must be a power of two from 8 to 1048576")
    return value


@dataclass(frozen=True, slots=True)
class _Info:
    name: str
    dims: tuple[int, ...]  # row length first, as in the file
    type_number: int
    offset: int


def _read_info(cursor: Cursor, index: int) -> _Info:
    name = cursor.string(f"the name of tensor {index}")
    if not name:
        raise cursor.file.broken(f"the name of tensor {index} is empty")
    what = f"tensor {shown(name)}"
    count = cursor.u32(f"the dimensions of {what}")
    if not 1 <= count <= MAX_DIMENSIONS:
        raise cursor.file.broken(f"{what} has {count} dimensions; 1 to {MAX_DIMENSIONS} are read")
    dims = cursor.u64s(count, f"the dimensions of {what}")
    number = cursor.u32(f"the type of {what}")
    return _Info(name, dims, number, cursor.u64(f"the offset of {what}"))


def _place(file: MappedFile, info: _Info, data_start: int, alignment: int) -> _Row:
    """Check one tensor by itself and find its bytes."""
    what = f"tensor {shown(info.name)}"
    kind = _tensor_type(file, info, what)
    shape = info.dims[::-1]
    if 0 in shape:
        raise file.broken(f"{what} of shape {list(shape)} has a dimension of zero")
    elements = 1
    for dim in shape:
        elements *= dim
    if elements >= 1 << 63:
        raise file.broken(f"{what} of shape {list(shape)} is too large: its size overflows")
    if shape[-1] % kind.block_size:
        raise file.broken(
            f"{what} has rows of {shape[-1]} elements, "
            f"which blocks of {kind.block_size} ({kind.value}) do not divide"
        )
    if info.offset % alignment:
        raise file.broken(f"the offset {info.offset} of {what} is not aligned to {alignment} bytes")
    start = data_start + info.offset
    end = start + kind.size_bytes(elements)
    if end > file.size:
        raise file.broken(
            f"{what} of shape {list(shape)} lies beyond the end of the file: "
            f"it ends at byte {end} of {file.size}"
        )
    return _Row(info.name, shape, kind, start, end)


def _tensor_type(file: MappedFile, info: _Info, what: str) -> TensorType:
    number = info.type_number
    kind = GGML_TYPES.get(number)
    if kind is not None:
        return kind
    if number in REMOVED_GGML_TYPES:
        name = REMOVED_GGML_TYPES[number]
        raise file.broken(f"{what} has the type {name}, which GGUF gave up; convert the file again")
    raise file.broken(f"{what} has the unknown type {number}")


def _check_rows(file: MappedFile, rows: list[_Row]) -> None:
    """No name twice, no byte in two tensors."""
    names: set[str] = set()
    for row in rows:
        if row.name in names:
            raise file.broken(f"the tensor {shown(row.name)} occurs twice")
        names.add(row.name)
    ordered = sorted(rows, key=lambda row: row.start)
    for before, after in pairwise(ordered):
        if after.start < before.end:
            raise file.broken(
                f"the tensors {shown(before.name)} and {shown(after.name)} overlap in the file"
            )


def _stored(file: MappedFile, row: _Row) -> StoredTensor:
    data = file.bytes[row.start : row.end]
    return StoredTensor(row.name, row.shape, row.type, data, file.name)


def _join(path: Path, first: GGUFFile, count: int) -> GGUFFile:
    """Add the other parts of a split file."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise first.files[0].broken(
            f"is one of {count} parts, but is not named like NAME-00001-of-{count:05}.gguf"
        )
    if match["number"] != "00001":
        start = f"{match['stem']}-00001-of-{count:05}.gguf"
        raise first.files[0].broken(f"is not the first part; give {shown(start)}")
    parts = [first]
    for number in range(2, count + 1):
        parts.append(_read_one(path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf")))
    tensors: dict[str, StoredTensor] = {}
    for index, part in enumerate(parts):
        _check_part(part, index, count)
        for name in part.tensors.keys() & tensors.keys():
            raise part.files[0].broken(f"the tensor {shown(name)} is in an earlier part too")
        tensors |= part.tensors
    expected = first.metadata.get("split.tensors.count")
    if expected is not None and expected != len(tensors):
        raise first.files[0].broken(
            f"'split.tensors.count' wrong: the {count} parts hold {len(tensors)}"
        )
    return GGUFFile(first.metadata, tensors, tuple(file for part in parts for file in part.files))


def _check_part(part: GGUFFile, index: int, count: int) -> None:
    """`split.no` counts from 0."""
    for key, expected in (("split.no", index), ("split.count", count)):
        found = part.metadata.get(key)
        if found != expected:
            shown_value = found if type(found) is int else "absent or no number"
            raise part.files[0].broken(f"{key!r} is {shown_value}, but must be {expected} here")
