"""What each operation means, in NumPy and float32: slow, obvious, the definition of right.

A token's numbers are computed from that token's row alone, by the same calls whatever else is in
the step: rows are multiplied one by one, and attention takes each query with exactly its context.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
IntArray = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary positions (Su et al. 2021, RoFormer), first half paired with second half.

    The first `rotary_dim` of `head_dim` numbers turn; pair i turns by
    position * theta ** (-2 i / rotary_dim) / factors[i]. Empty factors: all 1.
    """

    head_dim: int
    rotary_dim: int
    theta: float
    factors: tuple[float, ...] = ()

    def frequencies(self) -> Float32Array:
        """[rotary_dim / 2], radians a position."""
        exponents = np.arange(0, self.rotary_dim, 2, dtype=np.float64) / self.rotary_dim
        factors = np.asarray(self.factors or 1.0, np.float64)
        return (self.theta**-exponents / factors).astype(np.float32)


def embed(token_ids: IntArray, weight: Float32Array, *, scale: float = 1.0) -> Float32Array:
    """[T] ids, [rows, H] -> [T, H], times scale."""
    rows = weight[token_ids]
    return rows if scale == 1.0 else rows * np.float32(scale)


def rms_norm(
    x: Float32Array, weight: Float32Array, *, eps: float, offset: float = 0.0, groups: int = 1
) -> Float32Array:
    """x / sqrt(mean(x^2) + eps) * (weight + offset) (Zhang, Sennrich 2019).

    The mean is over each of `groups` equal parts of the last axis, and the weight is as long.
    """
    parts = x.reshape(*x.shape[:-1], groups, -1)
    mean = np.mean(parts * parts, axis=-1, keepdims=True, dtype=np.float32)
    scaled = parts / np.sqrt(mean + np.float32(eps))
    gain = weight + np.float32(offset) if offset else weight
    return np.asarray(scaled * gain, np.float32).reshape(x.shape)


def linear(
    x: Float32Array, weight: Float32Array, bias: Float32Array | None = None, *, shard: str = ""
) -> Float32Array:
    """[T, in], [out, in] -> [T, out]: x @ weight.T + bias. `shard` changes nothing here."""
    out = np.empty((x.shape[0], weight.shape[0]), np.float32)
    for row, result in zip(x, out, strict=True):
        np.dot(weight, row, out=result)  # alone: a matrix product sums differently by row count
    if bias is not None:
        out += bias
    return out


def rope(x: Float32Array, positions: IntArray, *, config: RopeConfig) -> Float32Array:
    """[T, heads * head_dim], positions [1, T] -> [T, heads, head_dim]."""
    heads = x.reshape(x.shape[0], -1, config.head_dim)
    half = config.rotary_dim // 2
    angles = positions[0].astype(np.float32)[:, None] * config.frequencies()
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]  # [T, 1, half]
    first, second = heads[..., :half], heads[..., half : config.rotary_dim]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return np.concatenate([*turned, heads[..., config.rotary_dim :]], axis=-1)


def attention(
    q: Float32Array, keys: Float32Array, values: Float32Array, *, scale: float, window: int = 0
) -> Float32Array:
    """Causal grouped attention of one sequence (Vaswani et al. 2017; Ainslie et al. 2023).

    q: [T, heads, D], the last T positions of a context of n; keys: [n, kv_heads, D]; values:
    [n, kv_heads, Dv]; -> [T, heads * Dv]. A query sees itself and what precedes it; with a
    window w > 0, the last w of those.
    """
    tokens, heads, dim = q.shape
    context, kv_heads, value_dim = values.shape
    grouped = q.reshape(tokens, kv_heads, heads // kv_heads, dim)
    keys, values = keys.transpose(1, 2, 0), values.transpose(1, 0, 2)  # [kv, D, n], [kv, n, Dv]
    out = np.empty((tokens, heads * value_dim), np.float32)
    for t in range(tokens):
        end = context - tokens + t + 1
        seen = slice(max(0, end - window) if window else 0, end)
        scores = grouped[t] @ keys[:, :, seen] * np.float32(scale)  # [kv, group, seen]
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[t] = (weights @ values[:, seen]).reshape(-1)
    return out


def silu_mul(gate: Float32Array, up: Float32Array) -> Float32Array:
    """silu(gate) * up, silu(x) = x / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf is right: the quotient is 0
        return np.asarray(gate / (np.float32(1) + np.exp(-gate)) * up, np.float32)


def gelu_mul(gate: Float32Array, up: Float32Array) -> Float32Array:
    """gelu(gate) * up, gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).

    The tanh form of Hendrycks, Gimpel 2016.
    """
    half, cubic = np.float32(0.5), np.float32(0.044715)
    with np.errstate(over="ignore"):  # tanh(inf) = 1 is right
        inner = np.float32(np.sqrt(2 / np.pi)) * (gate + cubic * gate * gate * gate)
    return np.asarray(half * gate * (np.float32(1) + np.tanh(inner)) * up, np.float32)


def add(a: Float32Array, b: Float32Array) -> Float32Array:
    """a + b of one shape."""
    return a + b


def gather(x: Float32Array, rows: IntArray) -> Float32Array:
    """[T, H], [R] -> [R, H]."""
    return x[rows]


def logits(x: Float32Array, weight: Float32Array, *, scale: float = 1.0) -> Float32Array:
    """[R, H], [rows, H] -> [R, rows]: x @ weight.T * scale."""
    out = linear(x, weight)
    if scale != 1.0:
        out *= np.float32(scale)
    return out
