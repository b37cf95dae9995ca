"""Reads the values of a GGUF header: numbers, strings, arrays, each checked before it is read.

Source: the GGUF specification (little-endian; strings and arrays carry a 64-bit length). The bounds
are ours, far above what real files hold: they keep small what a stranger's header can claim.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np

from octavo import _native
from octavo.errors import ModelFileError
from octavo.weights.mapped import MappedFile, shown

MAX_HEADER_BYTES = 64 << 20  # vocabularies of 262,144 tokens with merges take about 20 MiB
MAX_ELEMENTS = 4 << 20  # of all arrays, weighted; such vocabularies come to 2.1 million
MAX_NESTING = 4  # arrays in arrays; no known file has any


class ValueKind(IntEnum):
    """Type numbers of metadata values."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    U64 = 10
    I64 = 11
    F64 = 12


NUMBER_FORMATS: dict[ValueKind, str] = {
    ValueKind.U8: "<B",
    ValueKind.I8: "<b",
    ValueKind.U16: "<H",
    ValueKind.I16: "<h",
    ValueKind.U32: "<I",
    ValueKind.I32: "<i",
    ValueKind.F32: "<f",
    ValueKind.BOOL: "<B",
    ValueKind.U64: "<Q",
    ValueKind.I64: "<q",
    ValueKind.F64: "<d",
}
"""struct formats, little-endian; a bool is a byte that is 0 or 1."""

_NUMBERS = {kind: struct.Struct(form) for kind, form in NUMBER_FORMATS.items()}
_U32, _U64 = _NUMBERS[ValueKind.U32], _NUMBERS[ValueKind.U64]
_MIN_BYTES = {ValueKind.STRING: 8, ValueKind.ARRAY: 12} | {
    kind: number.size for kind, number in _NUMBERS.items()
}


# What an element of an array weighs in time and memory; a number weighs 1.
_WEIGHTS = {ValueKind.STRING: 2, ValueKind.ARRAY: 32}


class GGUFArray(list[Any]):
    """A metadata array: a list of Python values that remembers the kind of its elements."""

    __slots__ = ("kind",)

    def __init__(self, kind: ValueKind, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        self.kind = kind


class Cursor:
    """A position in the header of a mapped file. Every method raises ModelFileError on a fault."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.position = 0
        self.end = min(file.size, MAX_HEADER_BYTES)
        self._elements_left = MAX_ELEMENTS

    def ends_early(self, what: str) -> ModelFileError:
        """The error for a field `what` that does not fit."""
        if self.end < self.file.size:
            limit = f"{MAX_HEADER_BYTES >> 20} MiB that a header may take"
            return self.file.broken(f"{what} goes beyond the {limit}")
        return self.file.broken(f"the file ends within {what}: truncated, or a length is wrong")

    def skip(self, size_bytes: int, what: str) -> int:
        """Step over a field; returns where it begins."""
        start = self.position
        if size_bytes > self.end - start:
            raise self.ends_early(what)
        self.position = start + size_bytes
        return start

    def u32(self, what: str) -> int:
        """An unsigned 32-bit number."""
        value: int = _U32.unpack_from(self.file.data, self.skip(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """An unsigned 64-bit number."""
        value: int = _U64.unpack_from(self.file.data, self.skip(8, what))[0]
        return value

    def u64s(self, count: int, what: str) -> tuple[int, ...]:
        """`count` (a small number) unsigned 64-bit numbers."""
        return struct.unpack_from(f"<{count}Q", self.file.data, self.skip(8 * count, what))

    def string(self, what: str) -> str:
        """A string; `what` names it in errors."""
        length = self.u64(f"the length of {what}")
        start = self.skip(length, f"the string {what} of length {length}")
        return self._text(self.file.data[start : start + length], what)

    def kind(self, what: str) -> ValueKind:
        """The type number of a value."""
        number = self.u32(f"the type of {what}")
        try:
            return ValueKind(number)
        except ValueError:
            raise self.file.broken(f"{what} has the unknown value type {number}") from None

    def value(self, kind: ValueKind, what: str) -> Any:
        """A value: int, float, bool, str or GGUFArray."""
        if kind is ValueKind.STRING:
            return self.string(what)
        if kind is ValueKind.ARRAY:
            return self._array(what, depth=1)
        number = _NUMBERS[kind]
        value = number.unpack_from(self.file.data, self.skip(number.size, what))[0]
        return self._bools([value], what)[0] if kind is ValueKind.BOOL else value

    def _array(self, what: str, depth: int) -> GGUFArray:
        if depth > MAX_NESTING:
            raise self.file.broken(f"{what} nests arrays more than {MAX_NESTING} deep")
        kind = self.kind(f"the elements of {what}")
        count = self.u64(f"the length of {what}")
        if count > (self.end - self.position) // _MIN_BYTES[kind]:
            raise self.ends_early(f"the array {what} of length {count}")
        self._elements_left -= count * _WEIGHTS.get(kind, 1)
        if self._elements_left < 0:
            raise self.file.broken(f"more than {MAX_ELEMENTS} array elements with {what}")
        if kind is ValueKind.STRING:
            return self._strings(count, what)
        if kind is ValueKind.ARRAY:
            return GGUFArray(kind, [self._array(what, depth + 1) for _ in range(count)])
        form = NUMBER_FORMATS[kind]
        start = self.skip(count * _NUMBERS[kind].size, what)
        values = np.frombuffer(self.file.data, np.dtype(form), count, start).tolist()
        return GGUFArray(kind, self._bools(values, what) if kind is ValueKind.BOOL else values)

    def _strings(self, count: int, what: str) -> GGUFArray:
        """Vocabularies pass here."""
        found = _native.read_strings(self.file.bytes, self.position, self.end, count)
        if found is None:
            return self._strings_one_by_one(count, what)
        strings, self.position = found
        return GGUFArray(ValueKind.STRING, strings)

    def _strings_one_by_one(self, count: int, what: str) -> GGUFArray:
        """The same, and the error that names the string at fault."""
        data, end, position = self.file.data, self.end, self.position
        length_at = _U64.unpack_from
        values = GGUFArray(ValueKind.STRING)
        append = values.append
        for _ in range(count):
            start = position + 8
            if start > end:
                raise self.ends_early(what)
            position = start + length_at(data, position)[0]
            if position > end:
                raise self.ends_early(f"a string of {what} of length {position - start}")
            try:
                append(data[start:position].decode())
            except UnicodeDecodeError:
                raise self.file.broken(f"string {len(values)} of {what} is not UTF-8") from None
        self.position = position
        return values

    def _text(self, data: bytes, what: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.file.broken(f"the string {what} is not UTF-8") from None

    def _bools(self, values: list[int], what: str) -> list[bool]:
        if any(value > 1 for value in values):
            raise self.file.broken(f"{what} holds a bool that is neither 0 nor 1")
        return [value == 1 for value in values]


def read_pairs(cursor: Cursor, count: int) -> dict[str, Any]:
    """The metadata: `count` pairs of key and value."""
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}")
        what = shown(key)
        if not key:
            raise cursor.file.broken(f"metadata key {index} is empty")
        if key in metadata:
            raise cursor.file.broken(f"the metadata key {what} occurs twice")
        metadata[key] = cursor.value(cursor.kind(what), what)
    return metadata
