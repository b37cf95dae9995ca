"""A program: the frozen list of operations that a model wrote, with all it needs to be run."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

# A size is a number, or the name of one that is known only at run time: "T" tokens of a step,
# "R" rows whose logits are wanted, "axes" of a position.
Size = int | str
Shape = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that an operation (or the caller) will produce. `id` is unique in its program."""

    id: int
    shape: Shape

    def __str__(self) -> str:
        return f"%{self.id}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: `name` is in the table of operations (`ops.OPS`).

    weights: full tensor names, in the order in which the operation takes them. attrs: its other
    arguments.
    """

    name: str
    inputs: tuple[Value, ...]
    weights: tuple[str, ...]
    attrs: Mapping[str, Any]
    output: Value

    @property
    def detail(self) -> str:
        """What tells this operation from others of its name, for profiles."""
        if self.weights:
            return self.weights[0]
        return f"layer {self.attrs['layer']}" if "layer" in self.attrs else ""

    def __str__(self) -> str:
        parts = [f"%{value.id}" for value in self.inputs] + list(self.weights)
        parts += [f"{key}={value}" for key, value in self.attrs.items() if value is not None]
        return f"{self.output} = {self.name}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class CacheNeed:
    """Layers that share one block table, and the size of what they keep of one token.

    Each layer keeps keys and values of [kv_heads, head_dim] each; the backend chooses the type.
    """

    kind: Literal["full"]
    layers: tuple[int, ...]
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in the order in which they are run. Made by `Graph.program`.

    weights: tensor name -> shape, row-major, [out, in] for linears. The inputs are, by name,
    token_ids [T], positions [axes, T] and logits_rows [R]; the output is `logits` [R, rows].
    """

    inputs: Mapping[str, Value]
    ops: tuple[Op, ...]
    weights: Mapping[str, tuple[int, ...]]
    cache: tuple[CacheNeed, ...]
    outputs: Mapping[str, Value]

    def __post_init__(self) -> None:
        for name in ("inputs", "weights", "outputs"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __str__(self) -> str:
        lines = [f"input {name} {value}" for name, value in self.inputs.items()]
        lines += [
            f"cache {i}: {need.kind}, {len(need.layers)} layers of 2 x [{need.kv_heads}, "
            f"{need.head_dim}] a token"
            for i, need in enumerate(self.cache)
        ]
        lines += map(str, self.ops)
        lines += [f"output {name} {value}" for name, value in self.outputs.items()]
        return "\n".join(lines)
