"""Translates a program and its weights into the flat description that C++ runs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from octavo import _native
from octavo.errors import ConfigError, ModelFileError
from octavo.graph import Op, Program, RopeConfig
from octavo.weights.checkpoint import Checkpoint, WeightTensor

WEIGHT_TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0")


def describe(program: Program, checkpoint: Checkpoint, vocab_size: int) -> _native.Program:
    """An `_native.Program` that maps the checkpoint's bytes.

    Only the first `vocab_size` rows of logits will be computed. ConfigError: an operation has no
    kernels. ModelFileError: a weight is missing, misshapen or of a type without kernels.
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

    def matrix(self, name: str) -> int:
        """Index of a matrix; its bytes stay where they are."""
        if name not in self.matrices:
            tensor = self._tensor(name)
            if tensor.type.value not in WEIGHT_TYPES:
                raise ModelFileError(
                    f"{tensor.stored.file}: the native backend has no kernels for "
                    f"{tensor.type.value} (tensor {name}); it has them for "
                    f"{', '.join(WEIGHT_TYPES)}: convert the file, or use --backend reference"
                )
            rows, cols = tensor.shape
            order = tensor.row_order()
            self.matrices[name] = self.out.matrix(
                tensor.type.value,
                tensor.raw().reshape(-1),
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

    def _tensor(self, name: str) -> WeightTensor:
        tensor = self.checkpoint.tensors.get(name)
        if tensor is None:
            raise ModelFileError(f"tensor {name} is missing")
        shape = self.program.weights[name]
        if tensor.shape != shape:
            raise ModelFileError(f"tensor {name} is {list(tensor.shape)}; it must be {list(shape)}")
        return tensor


def _embed(w: _Writer, op: Op) -> None:
    w.out.embed(op.output.id, w.matrix(op.weights[0]))


def _rms_norm(w: _Writer, op: Op) -> None:
    gain = w.vector(op.weights[0], op.attrs["offset"])
    w.out.rms_norm(op.inputs[0].id, op.output.id, gain, op.attrs["eps"])


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
    "add": _add,
    "gather": _gather,
    "logits": _logits,
}
