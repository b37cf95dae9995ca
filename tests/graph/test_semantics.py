"""The meaning of each operation against loops over single numbers, its slow twin."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.graph import semantics
from octavo.graph.semantics import RopeConfig

sizes = st.integers(1, 5)
seeds = st.integers(0, 2**32 - 1)


def randoms(seed, *shapes):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape, np.float32) for shape in shapes]


def close(got, expected):
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.asarray(expected, np.float64), rtol=2e-5, atol=2e-5)


def test_embed_and_gather_pick_rows():
    (table,) = randoms(0, (6, 3))
    picked = np.array([5, 0, 5], np.int32)
    assert np.array_equal(semantics.embed(picked, table), [table[5], table[0], table[5]])
    assert np.array_equal(semantics.gather(table, picked), [table[5], table[0], table[5]])
    assert np.array_equal(semantics.embed(picked[:1], table, scale=3.0), [table[5] * 3])


@given(seeds, sizes, sizes, sizes, st.sampled_from([0.0, 1.0]))
def test_rms_norm(seed, tokens, groups, width, offset):
    x, weight = randoms(seed, (tokens * groups, width), (width,))
    expected = [
        [
            v / math.sqrt(sum(float(u) ** 2 for u in row) / width + 1e-3) * (w + offset)
            for v, w in zip(row, weight, strict=True)
        ]
        for row in x
    ]
    got = semantics.rms_norm(
        x.reshape(tokens, groups * width), weight, eps=1e-3, offset=offset, groups=groups
    )
    close(got.reshape(x.shape), expected)


@given(seeds, sizes, sizes, sizes, st.booleans())
def test_linear_and_logits(seed, tokens, inner, outer, biased):
    x, weight, bias = randoms(seed, (tokens, inner), (outer, inner), (outer,))
    product = [
        [sum(float(a) * float(b) for a, b in zip(row, column, strict=True)) for column in weight]
        for row in x
    ]
    added = np.asarray(product) + (bias if biased else 0)
    close(semantics.linear(x, weight, bias if biased else None), added)
    close(semantics.logits(x, weight, scale=0.25), np.asarray(product) / 4)


def test_a_row_is_multiplied_as_if_alone():
    x, weight = randoms(1, (33, 100), (77, 100))
    whole = semantics.linear(x, weight)
    for t in range(33):
        assert np.array_equal(semantics.linear(x[t : t + 1], weight)[0], whole[t])


@given(seeds, sizes, sizes, st.integers(1, 3), st.integers(0, 2), st.booleans())
def test_rope(seed, tokens, heads, pairs, more, scaled):
    dim = 2 * (pairs + more)
    (x,) = randoms(seed, (tokens, heads * dim))
    factors = tuple(1.0 + i for i in range(pairs)) if scaled else ()
    config = RopeConfig(dim, 2 * pairs, 100.0, factors)
    positions = np.random.default_rng(seed).integers(0, 50, (1, tokens)).astype(np.int32)
    expected = x.reshape(tokens, heads, dim).astype(np.float64).copy()
    for t in range(tokens):
        for i in range(pairs):
            angle = (
                positions[0, t] * 100.0 ** (-2 * i / (2 * pairs)) / (factors[i] if scaled else 1)
            )
            first, second = expected[t, :, i].copy(), expected[t, :, i + pairs].copy()
            expected[t, :, i] = first * math.cos(angle) - second * math.sin(angle)
            expected[t, :, i + pairs] = second * math.cos(angle) + first * math.sin(angle)
    close(semantics.rope(x, positions, config=config), expected)


def slow_attention(q, keys, values, scale, window):
    tokens, heads, dim = q.shape
    context, kv_heads, _ = keys.shape
    out = np.zeros((tokens, heads, dim))
    for t in range(tokens):
        at = context - tokens + t
        seen = [j for j in range(at + 1) if not window or at - j < window]
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = [scale * float(q[t, head] @ keys[j, kv]) for j in seen]
            weights = [math.exp(s - max(scores)) for s in scores]
            for j, weight in zip(seen, weights, strict=True):
                out[t, head] += weight / sum(weights) * values[j, kv]
    return out.reshape(tokens, -1)


@given(
    seeds, sizes, st.integers(0, 7), st.integers(1, 3), st.integers(1, 3), sizes, st.integers(0, 6)
)
def test_attention(seed, tokens, before, kv_heads, group, dim, window):
    context = before + tokens
    q, keys, values = randoms(
        seed, (tokens, kv_heads * group, dim), (context, kv_heads, dim), (context, kv_heads, dim)
    )
    got = semantics.attention(q, keys, values, scale=0.3, window=window)
    close(got, slow_attention(q, keys, values, 0.3, window))


@settings(max_examples=20)
@given(seeds, st.integers(1, 40), st.integers(0, 40), st.sampled_from([0, 8]))
def test_chunks_of_attention_are_the_whole(seed, first, second, window):
    """Bit for bit: a query's numbers depend on its own context alone."""
    context = first + second
    q, keys, values = randoms(seed, (context, 6, 16), (context, 2, 16), (context, 2, 16))
    whole = semantics.attention(q, keys, values, scale=0.25, window=window)
    parts = [
        semantics.attention(q[:first], keys[:first], values[:first], scale=0.25, window=window),
        semantics.attention(q[first:], keys, values, scale=0.25, window=window),
    ]
    assert np.array_equal(np.concatenate(parts), whole)


@given(seeds, sizes)
def test_gated_activations_and_add(seed, tokens):
    gate, up = randoms(seed, (tokens, 4), (tokens, 4))
    expected = [
        [g / (1 + math.exp(-g)) * u for g, u in zip(*rows, strict=True)]
        for rows in zip(gate.tolist(), up.tolist(), strict=True)
    ]
    close(semantics.silu_mul(gate, up), expected)
    expected = [
        [
            g / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) * u
            for g, u in zip(*rows, strict=True)
        ]
        for rows in zip(gate.tolist(), up.tolist(), strict=True)
    ]
    close(semantics.gelu_mul(gate, up), expected)
    close(semantics.add(gate, up), gate + up)


@pytest.mark.parametrize(("x", "expected"), [(-1000.0, 0.0), (1000.0, 1000.0), (3e38, 3e38)])
def test_activations_of_extremes(x, expected):
    gate = np.full((1, 8), x, np.float32)
    wanted = np.full((1, 8), expected, np.float32)
    for activation in (semantics.silu_mul, semantics.gelu_mul):
        assert np.array_equal(activation(gate, np.ones_like(gate)), wanted)
