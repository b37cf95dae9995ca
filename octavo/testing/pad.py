"""Widens a Llama model with zeros, the same function in rows that blocks of 256 weights divide.

A norm over more columns, the new ones zero, divides by a smaller root of the mean square: with
H columns made H', its weights times sqrt(H / H') and its epsilon times H / H' undo that. New heads
and new inner columns are zero, and nothing reads them: the matrices after them have zero columns.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from octavo.testing.model_files import Pair
from octavo.testing.quantise import Encoded, encode
from octavo.testing.rewrite import FILE_TYPES, Planned, stored_pairs, write_planned
from octavo.weights.checkpoint import WeightTensor
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import GGUFFile, read_gguf
from octavo.weights.gguf_metadata import ValueKind
from octavo.weights.mapped import StoredTensor

_AXES: Mapping[str, tuple[str, ...]] = {
    "token_embd": ("vocabulary", "hidden"),
    "output": ("vocabulary", "hidden"),
    "output_norm": ("hidden",),
    "rope_freqs": ("pairs",),
    "attn_norm": ("hidden",),
    "attn_q": ("query", "hidden"),
    "attn_k": ("key", "hidden"),
    "attn_v": ("key", "hidden"),
    "attn_output": ("hidden", "query"),
    "ffn_norm": ("hidden",),
    "ffn_gate": ("inner", "hidden"),
    "ffn_up": ("inner", "hidden"),
    "ffn_down": ("hidden", "inner"),
}
"""End of a tensor's name, without `.weight` -> the widths that its dimensions are."""

_EPSILON = "llama.attention.layer_norm_rms_epsilon"


@dataclass(frozen=True, slots=True)
class _Width:
    """Elements before and after."""

    old: int
    new: int

    @property
    def ratio(self) -> float:
        return self.old / self.new


@dataclass(frozen=True, slots=True)
class _Heads:
    """Grouped heads: as many kv heads and heads for each as make whole multiples."""

    size: int
    kv_heads: _Width
    group: int

    @property
    def query(self) -> _Width:
        width = self.group * self.size
        return _Width(self.kv_heads.old * width, self.kv_heads.new * width)

    @property
    def key(self) -> _Width:
        return _Width(self.kv_heads.old * self.size, self.kv_heads.new * self.size)


def pad_to_multiple(source: Path, target: Path, weight_type: str, multiple: int = 256) -> None:
    """Write `target`: the GGUF Llama `source` with rows of whole multiples, matrices in one type.

    weight_type: one of FILE_TYPES; every matrix gets it. SmolLM2-135M (576 columns, 9/3 heads)
    becomes 768 columns and 12/4 heads. The function is the same but for what float32 and the type
    round. `target` appears whole.

    Raises KeyError for another type, ModelFileError for a file that cannot be read or decoded,
    ValueError for one that is no plain Llama, or a multiple that the type's blocks do not divide.
    """
    kind, file_type = TensorType[weight_type], FILE_TYPES[weight_type]
    if multiple % kind.block_size:
        raise ValueError(f"blocks of {kind.block_size} do not divide rows of {multiple} n")
    file = read_gguf(source)
    heads, hidden, inner = _widths(file, multiple)
    widths = {"hidden": hidden, "inner": inner, "query": heads.query, "key": heads.key}
    changes = {
        "general.file_type": (ValueKind.U32, file_type),
        "llama.embedding_length": (ValueKind.U32, hidden.new),
        "llama.feed_forward_length": (ValueKind.U32, inner.new),
        "llama.attention.head_count": (ValueKind.U32, heads.kv_heads.new * heads.group),
        "llama.attention.head_count_kv": (ValueKind.U32, heads.kv_heads.new),
        _EPSILON: (ValueKind.F32, file.metadata[_EPSILON] * hidden.ratio),
    }
    pairs = stored_pairs(source, changes)
    present = {pair.key for pair in pairs}
    pairs += [Pair(key, *change) for key, change in changes.items() if key not in present]
    planned = [_planned(tensor, kind, widths) for tensor in file.tensors.values()]
    write_planned(target, pairs, planned)


def _widths(file: GGUFFile, multiple: int) -> tuple[_Heads, _Width, _Width]:
    """Heads, hidden columns and inner columns, from the metadata."""
    metadata = file.metadata
    if metadata.get("general.architecture") != "llama" or _EPSILON not in metadata:
        raise ValueError("only GGUF files of the architecture llama can be padded")
    hidden = _number(metadata, "embedding_length")
    count = _number(metadata, "attention.head_count")
    kv_count = _number(metadata, "attention.head_count_kv", count)
    size = _number(metadata, "attention.key_length", hidden // count)
    group = count // kv_count
    kv_heads = _upwards(kv_count, multiple // math.gcd(multiple, group * size))
    heads = _Heads(size, kv_heads, group)
    inner = _upwards(_number(metadata, "feed_forward_length"), multiple)
    if "llama.attention.key_length" in metadata:
        return heads, _upwards(hidden, multiple), inner
    return heads, heads.query, inner  # the size of a head is told by their quotient


def _number(metadata: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = metadata.get(f"llama.{key}", default)
    if not isinstance(value, int):
        raise ValueError(f"llama.{key} must be one number for all layers, not {value!r}")
    return value


def _upwards(old: int, multiple: int) -> _Width:
    return _Width(old, -(-old // multiple) * multiple)


def _planned(tensor: StoredTensor, kind: TensorType, widths: Mapping[str, _Width]) -> Planned:
    end = tensor.name.removesuffix(".weight").rpartition(".")[2]
    axes = _AXES.get(end, ())
    known = [widths.get(axis) for axis in axes]
    if len(axes) != len(tensor.shape) or any(
        width and width.old != length for width, length in zip(known, tensor.shape, strict=True)
    ):
        raise ValueError(f"{tensor.name} of shape {list(tensor.shape)} is not of a plain Llama")
    shape = tuple(
        width.new if width else length for width, length in zip(known, tensor.shape, strict=True)
    )
    new_type = kind if len(shape) > 1 else TensorType.F32
    gain = math.sqrt(widths["hidden"].ratio) if axes == ("hidden",) else 1.0
    return Planned(tensor.name, shape, new_type, partial(_pad, tensor, shape, new_type, gain))


def _pad(tensor: StoredTensor, shape: tuple[int, ...], kind: TensorType, gain: float) -> Encoded:
    """Zeros after the values times `gain`, in stored order: heads follow each other."""
    values = np.zeros(shape, np.float32)
    inside = tuple(slice(length) for length in tensor.shape)
    values[inside] = WeightTensor(tensor.name, tensor).float32() * np.float32(gain)
    return encode(values, kind)
