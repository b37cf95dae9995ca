"""Writes GGUF and safetensors files; the functions on bytes write nonsense too, for tests."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.testing.quantise import Encoded, encode
from octavo.weights.encodings import GGML_TYPES, TensorType
from octavo.weights.gguf_metadata import NUMBER_FORMATS, GGUFArray, ValueKind

ALIGNMENT = 32

Tensors = Mapping[str, Encoded | NDArray[np.float32]]


class Pair(NamedTuple):
    """One metadata pair. `value` as bytes is written as it is, so it may contradict `kind`."""

    key: str
    kind: int
    value: Any


class Row(NamedTuple):
    """One row of GGUF's tensor table. dims: the row length first."""

    name: str
    dims: tuple[int, ...]
    type_number: int
    offset: int


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Tensors) -> Path:
    """Write a valid GGUF file (version 3).

    metadata: bool, int, float, str, lists of one of them, a GGUFArray or a (ValueKind, value) to
    choose the kind. By itself an int becomes U32 (I32 if negative, 64 bits if large), a float F32,
    a list of int an array of I32. tensors: float arrays are written as F32.
    """
    rows, data = [], bytearray()
    numbers = {kind: number for number, kind in GGML_TYPES.items()}
    for name, tensor in tensors.items():
        stored = _encoded(tensor)
        rows.append(Row(name, stored.shape[::-1], numbers[stored.type], len(data)))
        data += stored.data.tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    pairs = [Pair(key, *typed(value)) for key, value in metadata.items()]
    path.write_bytes(gguf_bytes(pairs, rows, bytes(data)))
    return path


def gguf_bytes(
    pairs: Sequence[Pair],
    rows: Sequence[Row] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    pair_count: int | None = None,
    alignment: int = ALIGNMENT,
) -> bytes:
    """A GGUF file. Nothing is checked: counts, types and offsets may lie."""
    counts = (
        len(rows) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    parts = [magic, struct.pack("<IQQ", version, *counts)]
    for pair in pairs:
        parts += [gguf_string(pair.key), struct.pack("<I", pair.kind)]
        parts.append(gguf_value(pair.kind, pair.value))
    for row in rows:
        parts += [gguf_string(row.name), struct.pack("<I", len(row.dims))]
        parts.append(struct.pack(f"<{len(row.dims)}Q", *row.dims))
        parts.append(struct.pack("<IQ", row.type_number, row.offset))
    header = b"".join(parts)
    return header + bytes(-len(header) % alignment) + data


def gguf_string(text: str) -> bytes:
    """A length and UTF-8; lone surrogates are written too, as bytes that are no UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind: int, value: Any) -> bytes:
    """One metadata value; bytes are passed on as they are."""
    if isinstance(value, bytes):
        return value
    if kind == ValueKind.STRING:
        return gguf_string(value)
    if kind == ValueKind.ARRAY:
        elements = b"".join(gguf_value(value.kind, element) for element in value)
        return struct.pack("<IQ", value.kind, len(value)) + elements
    return struct.pack(NUMBER_FORMATS[ValueKind(kind)], value)


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    """Write a valid safetensors file; float arrays are written as F32."""
    header, data = {}, bytearray()
    for name, tensor in tensors.items():
        stored = _encoded(tensor)
        begin = len(data)
        data += stored.data.tobytes()
        header[name] = {
            "dtype": stored.type.value,
            "shape": list(stored.shape),
            "data_offsets": [begin, len(data)],
        }
    path.write_bytes(safetensors_bytes(json.dumps(header).encode(), bytes(data)))
    return path


def safetensors_bytes(header: bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file; `length` is what it claims of its header."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def _encoded(tensor: Encoded | NDArray[np.float32]) -> Encoded:
    return tensor if isinstance(tensor, Encoded) else encode(tensor, TensorType.F32)


def typed(value: Any) -> tuple[ValueKind, Any]:
    """The kind that a plain Python value gets; see `write_gguf`."""
    if isinstance(value, tuple):
        return ValueKind(value[0]), value[1]
    if isinstance(value, GGUFArray):
        return ValueKind.ARRAY, value
    if isinstance(value, list):
        return ValueKind.ARRAY, GGUFArray(_element_kind(value), value)
    if isinstance(value, bool):
        return ValueKind.BOOL, value
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 32:
            return (ValueKind.U32 if value >= 0 else ValueKind.I32), value
        return (ValueKind.U64 if value >= 0 else ValueKind.I64), value
    if isinstance(value, float):
        return ValueKind.F32, value
    if isinstance(value, str):
        return ValueKind.STRING, value
    raise TypeError(f"GGUF has no kind for {type(value).__name__}")


def _element_kind(values: list[Any]) -> ValueKind:
    if all(isinstance(value, str) for value in values):  # an empty list too
        return ValueKind.STRING
    if all(isinstance(value, int) for value in values):
        return ValueKind.BOOL if isinstance(values[0], bool) else ValueKind.I32
    return ValueKind.F32
