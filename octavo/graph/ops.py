"""The table of operations: name, rule of shapes, reference semantics.

A new operation is a line here, its meaning in `semantics.py` and a method of `Graph`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from octavo.errors import ConfigError
from octavo.graph import semantics
from octavo.graph.program import Shape

# Shapes of inputs and weights, and attributes -> shape of the output; raises ConfigError.
ShapeRule = Callable[[tuple[Shape, ...], tuple[Shape, ...], Mapping[str, Any]], Shape]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """An operation of the table.

    meaning: called with input arrays, weight arrays and attributes; None where it also needs the
    cache (attention: `semantics.attention` says what is computed once keys and values are there).
    """

    shape: ShapeRule
    meaning: Callable[..., Any] | None


def _need(true: bool, message: str) -> None:
    if not true:
        raise ConfigError(message)


def _show(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _embed(inputs: tuple[Shape, ...], weights: tuple[Shape, ...], _: Mapping[str, Any]) -> Shape:
    return (*inputs[0], weights[0][1])


def _rms_norm(
    inputs: tuple[Shape, ...], weights: tuple[Shape, ...], attrs: Mapping[str, Any]
) -> Shape:
    groups = attrs["groups"]
    _need(groups >= 1, f"groups is {groups}; it must be at least 1")
    _need(
        weights[0] == (inputs[0][-1] // groups,) and int(inputs[0][-1]) % groups == 0,
        f"{_show(inputs[0])} normed by {_show(weights[0])}, groups {groups}",
    )
    _need(attrs["eps"] >= 0, f"eps is {attrs['eps']}; it must be at least 0")
    return inputs[0]


def _linear(inputs: tuple[Shape, ...], weights: tuple[Shape, ...], _: Mapping[str, Any]) -> Shape:
    x, weight = inputs[0], weights[0]
    _need(len(weight) == 2, f"weight is {_show(weight)}; it must be [out, in]")
    _need(x[-1] == weight[1], f"{_show(x)} times {_show(weight)}: the last sizes must be equal")
    _need(weights[1:] in ((), (weight[:1],)), f"bias must be [{weight[0]}]")
    return (*x[:-1], weight[0])


def _rope(inputs: tuple[Shape, ...], _: tuple[Shape, ...], attrs: Mapping[str, Any]) -> Shape:
    config: semantics.RopeConfig = attrs["config"]
    tokens, width = inputs[0]
    _need(
        isinstance(width, int) and width % config.head_dim == 0,
        f"{_show(inputs[0])} cannot be cut into heads of {config.head_dim}",
    )
    _need(
        config.rotary_dim % 2 == 0 and 0 < config.rotary_dim <= config.head_dim,
        f"rotary_dim is {config.rotary_dim}; it must be even and at most {config.head_dim}",
    )
    _need(
        len(config.factors) in (0, config.rotary_dim // 2),
        f"there are {len(config.factors)} rope factors; there must be {config.rotary_dim // 2}",
    )
    return tokens, int(width) // config.head_dim, config.head_dim


def _attention(inputs: tuple[Shape, ...], _: tuple[Shape, ...], attrs: Mapping[str, Any]) -> Shape:
    q, k, v = inputs
    _need(
        len(q) == len(k) == 3 and q[2] == k[2],
        f"q {_show(q)} and k {_show(k)} must be [T, heads, head_dim] with equal head_dim",
    )
    heads, kv_heads, dim = int(q[1]), int(k[1]), int(k[2])
    _need(heads % kv_heads == 0, f"{kv_heads} key heads do not divide {heads} query heads")
    _need(v == (k[0], kv_heads * dim), f"v is {_show(v)}; it must be [T, {kv_heads * dim}]")
    _need(attrs["window"] >= 0, f"window is {attrs['window']}; 0 is none, else the tokens seen")
    return q[0], heads * dim


def _equal(inputs: tuple[Shape, ...], _: tuple[Shape, ...], __: Mapping[str, Any]) -> Shape:
    first, second = inputs
    _need(first == second, f"{_show(first)} and {_show(second)} must be equal")
    return first


def _gather(inputs: tuple[Shape, ...], _: tuple[Shape, ...], __: Mapping[str, Any]) -> Shape:
    return (*inputs[1], *inputs[0][1:])


OPS: Mapping[str, OpSpec] = MappingProxyType(
    {
        "embed": OpSpec(_embed, semantics.embed),
        "rms_norm": OpSpec(_rms_norm, semantics.rms_norm),
        "linear": OpSpec(_linear, semantics.linear),
        "rope": OpSpec(_rope, semantics.rope),
        "attention": OpSpec(_attention, None),
        "silu_mul": OpSpec(_equal, semantics.silu_mul),
        "gelu_mul": OpSpec(_equal, semantics.gelu_mul),
        "add": OpSpec(_equal, semantics.add),
        "gather": OpSpec(_gather, semantics.gather),
        "logits": OpSpec(_linear, semantics.logits),
    }
)
