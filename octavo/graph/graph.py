"""Graph: records what a model function does to symbolic values, and checks shapes as it goes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from octavo.errors import ConfigError
from octavo.graph.ops import OPS
from octavo.graph.program import CacheNeed, Op, Program, Shape, Value
from octavo.graph.semantics import RopeConfig

# How a linear may be split over devices: by output rows, or by input columns (partial sums added).
Shard = Literal["", "out", "in"]


class Graph:
    """Records one program.

    weight_shapes: module name, or the end of one after a dot -> shape of its `.weight`. The longest
    end counts: "q_proj" covers that of every layer. What the model function uses is what the
    program needs, so a checkpoint can be checked against it.
    """

    def __init__(self, weight_shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._weight_shapes = weight_shapes
        self._next_id = 0
        self._ops: list[Op] = []
        self._weights: dict[str, tuple[int, ...]] = {}
        self._cache: dict[tuple[int, int], list[int]] = {}  # (kv_heads, head_dim) -> layers
        self._outputs: dict[str, Value] = {}
        self._embedding: str | None = None
        self.token_ids = self._value(("T",))
        self.positions = self._value(("axes", "T"))
        self.logits_rows = self._value(("R",))

    def embed(self, name: str, *, scale: float = 1.0) -> Value:
        """The rows of the table for this step's tokens, times scale: [T, H]."""
        self._embedding = name
        return self._record("embed", (self.token_ids,), name, scale=scale)

    def rms_norm(
        self, x: Value, name: str, eps: float, *, offset: float = 0.0, groups: int = 1
    ) -> Value:
        """x / rms(x) * (weight + offset), of x's shape [T, groups * size of the weight].

        Each of the `groups` parts of a row (heads, say) is normalised by itself.
        """
        return self._record("rms_norm", (x,), name, eps=eps, offset=offset, groups=groups)

    def linear(self, x: Value, name: str, *, bias: bool = False, shard: Shard = "") -> Value:
        """[T, in] -> [T, out]. shard: a hint for tensor parallelism."""
        return self._record("linear", (x,), name, bias=bias, shard=shard)

    def linears(
        self, x: Value, prefix: str, names: Sequence[str], *, bias: bool = False
    ) -> tuple[Value, ...]:
        """Several linears of one input, which backends may fuse; sharded by output."""
        return tuple(self.linear(x, prefix + n, bias=bias, shard="out") for n in names)

    def rope(self, x: Value, config: RopeConfig) -> Value:
        """[T, heads * head_dim] -> [T, heads, head_dim], turned by position."""
        return self._record("rope", (x, self.positions), config=config)

    def attention(
        self, q: Value, k: Value, v: Value, *, layer: int, scale: float, window: int = 0
    ) -> Value:
        """Writes k and v to the paged cache of `layer`, then attends over the context.

        q [T, heads, D], k [T, kv_heads, D], v [T, kv_heads * D] -> [T, heads * D].
        """
        out = self._record("attention", (q, k, v), layer=layer, scale=scale, window=window)
        layers = self._cache.setdefault((int(k.shape[1]), int(k.shape[2])), [])
        if any(layer in known for known in self._cache.values()):
            raise ConfigError(f"attention: layer {layer} already writes the cache")
        layers.append(layer)
        return out

    def silu_mul(self, gate: Value, up: Value) -> Value:
        """silu(gate) * up, of one shape."""
        return self._record("silu_mul", (gate, up))

    def gelu_mul(self, gate: Value, up: Value) -> Value:
        """gelu(gate) * up, of one shape; gelu in its tanh form."""
        return self._record("gelu_mul", (gate, up))

    def add(self, a: Value, b: Value) -> Value:
        """a + b, of one shape."""
        return self._record("add", (a, b))

    def logits(self, x: Value, head: str, *, tied: bool = False, scale: float = 1.0) -> None:
        """Ends the program: the wanted rows [R] of x times the head, or the embedding when tied."""
        if tied and self._embedding is None:
            raise ConfigError("logits: a tied head needs an embedding before it")
        rows = self._record("gather", (x, self.logits_rows))
        name = self._embedding if tied and self._embedding else head
        self._outputs["logits"] = self._record("logits", (rows,), name, scale=scale)

    def program(self) -> Program:
        """What was recorded. ConfigError when nothing was put out."""
        if not self._outputs:
            raise ConfigError("the program has no output: call logits() last")
        return Program(
            inputs={
                "token_ids": self.token_ids,
                "positions": self.positions,
                "logits_rows": self.logits_rows,
            },
            ops=tuple(self._ops),
            weights=self._weights,
            cache=tuple(
                CacheNeed("full", tuple(layers), kv_heads, head_dim)
                for (kv_heads, head_dim), layers in self._cache.items()
            ),
            outputs=self._outputs,
        )

    def _value(self, shape: Shape) -> Value:
        self._next_id += 1
        return Value(self._next_id - 1, shape)

    def _record(
        self,
        op: str,
        inputs: tuple[Value, ...],
        module: str | None = None,
        *,
        bias: bool = False,
        **attrs: Any,
    ) -> Value:
        where = f"{op} {module}" if module else op
        weights: dict[str, tuple[int, ...]] = {}
        if module is not None:
            shape = self._weight_shape(where, module)
            weights[f"{module}.weight"] = shape
            if bias:
                weights[f"{module}.bias"] = shape[:1]
        try:
            out = OPS[op].shape(tuple(v.shape for v in inputs), tuple(weights.values()), attrs)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        self._weights.update(weights)
        result = self._value(out)
        self._ops.append(Op(op, inputs, tuple(weights), MappingProxyType(attrs), result))
        return result

    def _weight_shape(self, where: str, module: str) -> tuple[int, ...]:
        end = module
        while end not in self._weight_shapes:
            _, dot, end = end.partition(".")
            if not dot:
                raise ConfigError(f"{where}: the family declares no shape for this weight")
        return self._weight_shapes[end]
