"""Translates a program and its weights into the flat description that C++ runs."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from octavo import _native
from octavo.errors import ConfigError, ModelFileError
from octavo.graph import Op, Program, RopeConfig
from octavo.weights.checkpoint import Checkpoint, WeightTensor
from octavo.weights.encodings import TensorType
from octavo.weights.quants import DECODED_TYPES, decode

WEIGHT_TYPES = tuple(_native.weight_types())
"""Names of the types that have kernels."""

_TILE_ROWS = 8  # csrc/linear packs so many together
_CHUNK_ELEMENTS = 1 << 22  # decoded at a time
_log = logging.getLogger(__name__)


def describe(program: Program, checkpoint: Checkpoint, vocab_size: int) -> _native.Program:
    """An `_native.Program` that maps the checkpoint's bytes.

    Only the first `vocab_size` rows of logits will be computed. Matrices of types without kernels
    that can be decoded are dequantised, and a line is logged. ConfigError: an operation has no
    kernels. ModelFileError: a weight is missing, misshapen or of another type.
    """
    size = 1 + max(value.id for op in program.ops for value in (*op.inputs, op.output))
    widths = [0] * size
    for op in program.ops:
        if op.name not in ("gather", "logits"):
            widths[op.output.id] = int(np.prod([int(n) for n in op.output.shape[1:]]))
    for op in program.ops:
        if op.name == "logits" and program.weights[op.weights[0]][0] < vocab_size:
            rows = program.weights[op.weights[0]][0]
            raise ConfigError(f"logits of {vocab_size} tokens are wanted, the head has {rows}")
    writer = _Writer(program, checkpoint, _native.Program(widths, vocab_size))
    for group, need in enumerate(program.cache):
        for layer in need.layers:
            writer.layers[layer] = writer.out.layer(group, need.kv_heads, need.head_dim)
    for op in program.ops:
        if op.name not in _WRITERS:
            raise ConfigError(f"the native backend has no kernel for the operation {op.name}")
        _WRITERS[op.name](writer, op)
    if writer.dequantised:
        counts = ", ".join(f"{n} of {pair}" for pair, n in sorted(writer.dequantised.items()))
        _log.warning("no kernels for the type of some matrices, dequantised them: %s", counts)
    return writer.out


@dataclass
class _Writer:
    """What has been handed over so far, by name."""

    program: Program
    checkpoint: Checkpoint
    out: _native.Program
    layers: dict[int, int] = field(default_factory=dict)
    matrices: dict[str, int] = field(default_factory=dict)
    ropes: dict[RopeConfig, int] = field(default_factory=dict)
    dequantised: Counter[str] = field(default_factory=Counter)  # by "IQ2_XS to F16"

    def matrix(self, name: str) -> int:
        """Index of a matrix; its bytes stay where they are if there are kernels for them."""
        if name not in self.matrices:
            tensor = self._tensor(name)
            kind, raw = tensor.type, tensor.raw().reshape(-1)
            if kind.value not in WEIGHT_TYPES:
                kind, raw = self._dequantise(name, tensor)
            rows, cols = tensor.shape
            order = tensor.row_order()
            self.matrices[name] = self.out.matrix(
                kind.value,
                raw,
                rows,
                cols,
                None if order is None else np.ascontiguousarray(order, np.int64),
            )
        return self.matrices[name]

    def vector(self, name: str, offset: float = 0.0) -> int:
        """Index of a one-dimensional weight, decoded, `offset` added."""
        values = self._tensor(name).float32()
        return int(self.out.vector(np.array(values + np.float32(offset), np.float32)))

    def rope(self, config: RopeConfig) -> int:
        """Index of a rope's frequencies."""
        if config not in self.ropes:
            self.ropes[config] = self.out.rope_config(config.head_dim, config.frequencies())
        return self.ropes[config]

    def _dequantise(self, name: str, tensor: WeightTensor) -> tuple[TensorType, NDArray[np.uint8]]:
        if tensor.type not in DECODED_TYPES:
            raise ModelFileError(
                f"{tensor.stored.file}: the native backend has no kernels for "
                f"{tensor.type.value} (tensor {name}); it has them for "
                f"{', '.join(WEIGHT_TYPES)}: convert the file"
            )
        kind, raw = dequantised(tensor.type, tensor.raw().reshape(-1), tensor.shape)
        self.dequantised[f"{tensor.type.value} to {kind.value}"] += 1
        return kind, raw

    def _tensor(self, name: str) -> WeightTensor:
        tensor = self.checkpoint.tensors.get(name)
        if tensor is None:
            raise ModelFileError(f"tensor {name} is missing")
        shape = self.program.weights[name]
        if tensor.shape != shape:
            raise ModelFileError(f"tensor {name} is {list(tensor.shape)}; it must be {list(shape)}")
        return tensor


def packed_bytes(program: Program, checkpoint: Checkpoint) -> int:
    """About the memory of the weights once they are repacked: some K types take 1 to 4 % more.

    The rows of an embedding that is not the head as well are read from the file when they are used.
    """
    total = 0
    multiplied = {name for op in program.ops if op.name != "embed" for name in op.weights}
    for name, shape in program.weights.items():
        if name not in multiplied:
            continue
        kind = checkpoint.tensors[name].type
        if len(shape) < 2:
            kind = TensorType.F32  # vectors are decoded
        elif kind.value not in WEIGHT_TYPES:
            kind = TensorType.F16  # as `dequantised` makes it
        rows = -(-shape[0] // _TILE_ROWS) * _TILE_ROWS if len(shape) > 1 else shape[0]
        total += kind.size_bytes(rows * int(np.prod(shape[1:], dtype=np.int64)))
    return total


def dequantised(
    kind: TensorType, raw: NDArray[np.uint8], shape: tuple[int, ...]
) -> tuple[TensorType, NDArray[np.uint8]]:
    """The matrix `raw`, one of DECODED_TYPES, as F16; as F32 if a number is too large for that.

    raw: its bytes; shape: [rows, cols]. Rows are decoded some at a time.
    """
    rows, cols = shape
    step = max(1, _CHUNK_ELEMENTS // cols)
    stored = raw.reshape(rows, kind.size_bytes(cols))
    halves = np.empty(shape, "<f2")
    for start in range(0, rows, step):
        part = stored[start : start + step]
        values = decode(kind, part.reshape(-1), (len(part), cols))
        with np.errstate(over="ignore"):
            halves[start : start + step] = values
        if np.any(np.isinf(halves[start : start + step]) & np.isfinite(values)):
            floats = decode(kind, raw, shape)
            return TensorType.F32, floats.reshape(-1).view(np.uint8)
    return TensorType.F16, halves.reshape(-1).view(np.uint8)


def _embed(w: _Writer, op: Op) -> None:
    w.out.embed(op.output.id, w.matrix(op.weights[0]), op.attrs["scale"])


def _rms_norm(w: _Writer, op: Op) -> None:
    gain = w.vector(op.weights[0], op.attrs["offset"])
    attrs = op.attrs
    w.out.rms_norm(op.inputs[0].id, op.output.id, gain, attrs["eps"], attrs["groups"])


def _linear(w: _Writer, op: Op) -> None:
    bias = w.vector(op.weights[1]) if len(op.weights) > 1 else -1
    w.out.linear(op.inputs[0].id, op.output.id, w.matrix(op.weights[0]), bias)


def _rope(w: _Writer, op: Op) -> None:
    config = op.attrs["config"]
    heads = int(op.output.shape[1])
    w.out.rope(op.inputs[0].id, op.output.id, w.rope(config), heads)


def _attention(w: _Writer, op: Op) -> None:
    w.out.attention(
        [value.id for value in op.inputs],
        op.output.id,
        w.layers[op.attrs["layer"]],
        int(op.inputs[0].shape[1]),
        op.attrs["scale"],
        op.attrs["window"],
    )


def _silu_mul(w: _Writer, op: Op) -> None:
    w.out.silu_mul(op.inputs[0].id, op.inputs[1].id, op.output.id)


def _gelu_mul(w: _Writer, op: Op) -> None:
    w.out.gelu_mul(op.inputs[0].id, op.inputs[1].id, op.output.id)


def _add(w: _Writer, op: Op) -> None:
    w.out.add(op.inputs[0].id, op.inputs[1].id, op.output.id)


def _gather(w: _Writer, op: Op) -> None:
    w.out.gather(op.inputs[0].id, op.output.id)


def _logits(w: _Writer, op: Op) -> None:
    w.out.logits(op.inputs[0].id, op.output.id, w.matrix(op.weights[0]), op.attrs["scale"])


_WRITERS: dict[str, Callable[[_Writer, Op], None]] = {
    "embed": _embed,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "rope": _rope,
    "attention": _attention,
    "silu_mul": _silu_mul,
    "gelu_mul": _gelu_mul,
    "add": _add,
    "gather": _gather,
    "logits": _logits,
}
