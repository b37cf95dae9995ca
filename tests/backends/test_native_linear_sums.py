"""The sums that csrc/linear/linear.h promises, written down again in NumPy: equal bit for bit.

Block types only. Integers come from `decode` of the same blocks with scales of one; each fused
multiply-add is computed exactly and rounded once.
"""

import numpy as np
import pytest

from octavo._native import cpu_features, linear
from octavo.backends.native_program import WEIGHT_TYPES
from octavo.testing.random_blocks import SCALE_OFFSETS, random_blocks
from octavo.weights.encodings import TensorType
from octavo.weights.quants import decode, mxfp4_scale

KINDS = [kind for kind in WEIGHT_TYPES if kind not in ("F32", "F16", "BF16")]
ISAS = ["scalar", *(name for name in ("avx2",) if name in cpu_features())]

ONES = {"Q4_K": b"\x11" * 128, "Q5_K": bytes(32) + b"\x11" * 128, "IQ4_XS": b"\x88" * 128}
"""Types with a scale for each 32 columns -> the end of a block whose codes all mean 1."""

TINY, LARGE = 6e-8, 65504.0  # the ends of fp16
SCALES = [(0.0, 0.0), (TINY, TINY), (-TINY, TINY), (LARGE, -LARGE), (-LARGE, LARGE), (6.1e-5, 0.0)]
"""Scale and minimum of the first rows."""
EXPONENTS = (0, 1, 2, 160, 120, 130)
"""The same of MXFP4."""


def adversarial_blocks(kind, rows, blocks, seed):
    """[rows, blocks, bytes], any codes; of several rows the first ones have extremes.

    After those of SCALES one of zero bytes and one whose codes are all 0xFF.
    """
    encoding = TensorType[kind]
    data = random_blocks(encoding, (rows, blocks * encoding.block_size), seed, 1.0).data
    data = data.reshape(rows, blocks, -1)
    if rows < 8:
        return data
    data[6], data[7] = 0, 0xFF
    if kind == "MXFP4":
        data[:6, :, 0] = np.array(EXPONENTS)[:, None]
        data[7, :, 0] = 128
    else:
        for row, numbers in enumerate(SCALES):
            set_halves(kind, data[row], *numbers)
        set_halves(kind, data[7], 1.0, 1.0)
    return data


def set_halves(kind, blocks, scale, minimum):
    """The fp16 numbers of [..., bytes]."""
    for at, number in zip(SCALE_OFFSETS[TensorType[kind]], (scale, minimum), strict=False):
        blocks[..., at : at + 2] = np.array([number], "<f2").view(np.uint8)


def numbers_of(kind, blocks):
    """d and m, float32 [rows, blocks]."""
    if kind == "MXFP4":
        return mxfp4_scale(blocks[..., 0]), None
    halves = [
        blocks[..., at : at + 2].copy().view("<f2")[..., 0].astype(np.float32)
        for at in SCALE_OFFSETS[TensorType[kind]]
    ]
    return halves[0], halves[1] if len(halves) > 1 else None


def integers_of(kind, blocks, scale, minimum, end=b""):
    """[rows, parts, 32], int64: what the blocks mean with these numbers, and codes if given."""
    blocks = blocks.copy()
    if kind == "MXFP4":
        blocks[..., 0] = 128
    else:
        set_halves(kind, blocks, scale, minimum)
    if end:
        blocks[..., -len(end) :] = np.frombuffer(end, np.uint8)
    rows, count = blocks.shape[:2]
    encoding = TensorType[kind]
    values = decode(encoding, blocks.reshape(-1), (rows, count * encoding.block_size))
    assert np.array_equal(values, np.rint(values))
    return values.reshape(rows, -1, 32).astype(np.int64)


def fma(a, b, c):
    """fp32 a * b + c of finite numbers, rounded once.

    The product is exact in float64. The sum is rounded to odd there: to fp32 it then rounds as the
    exact one would.
    """
    product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = total.view(np.int64) & 1 == 0
    towards = np.nextafter(total, np.copysign(np.inf, error))
    with np.errstate(over="ignore"):
        return np.where((error != 0) & even, towards, total).astype(np.float32)


def sums(kind, blocks, x, terms, bias):
    """[T, rows], as linear.h says; up to the end a term is a row of activations of its own.

    The integers of q2_K, q3_K and q6_K have the scales of their 16 columns in them.
    """
    q, scale, scaled_sum, *_ = linear.quantise(x, "scalar", terms)
    rows, width = len(blocks), TensorType[kind].block_size // 32
    d, m = (n if n is None else np.repeat(n, width, axis=1) for n in numbers_of(kind, blocks))
    values = integers_of(kind, blocks, 1, 0)
    by = integers_of(kind, blocks, 1, 0, ONES[kind])[..., 0] if kind in ONES else None
    # K types store what is taken off: d * scale * code - m * minimum.
    minima = integers_of(kind, blocks, 0, -1 if "K" in kind else 1) if m is not None else None
    acc = np.zeros((len(q), rows), np.float32)
    for part in range(values.shape[1]):
        dots = q[:, part].astype(np.int64) @ values[:, part].T
        s = np.ones(rows, np.int64) if by is None else by[:, part]
        dots = dots // np.where(s == 0, 1, s)
        factor = (d[:, part] * s.astype(np.float32)) * scale[:, part, None]
        acc = fma(factor, dots.astype(np.float32), acc)
        if kind == "Q2_K":
            low = q[:, part].astype(np.int64) @ minima[:, part].T
            acc = fma(-m[:, part] * scale[:, part, None], low.astype(np.float32), acc)
        elif minima is not None:
            sign = -1 if "K" in kind else 1
            number = sign * (m[:, part] * minima[:, part, 0].astype(np.float32))
            acc = fma(number[None, :], scaled_sum[:, part, None], acc)
    total = acc.reshape(len(x), terms, rows)
    return (total[:, 0] + total[:, 1] if terms == 2 else total[:, 0]) + bias


def activations(tokens, cols, seed):
    """Ordinary ones, zeros, one block alone, all at the end of their range, tiny and huge ones."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, cols), np.float32)
    x *= np.float32(10) ** rng.standard_normal((tokens, 1), np.float32)
    x[0, 32:] = 0
    if tokens > 5:
        x[1] = 0
        x[2] = np.sign(x[2])
        x[3:6] *= np.float32([[1e-34], [1e-20], [1e20]])
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize(("rows", "blocks", "tokens"), [(13, 1, 9), (13, 3, 7), (1, 2, 1)])
def test_every_form_computes_these_sums(kind, terms, rows, blocks, tokens):
    stored = adversarial_blocks(kind, rows, blocks, seed=rows + blocks)
    cols = blocks * TensorType[kind].block_size
    x = activations(tokens, cols, seed=blocks)
    bias = np.random.default_rng(9).standard_normal(rows, np.float32)
    weights = linear.PackedLinear(kind, rows, cols)
    weights.pack(stored.reshape(-1), None, 0, weights.tiles)
    expected = sums(kind, stored, x, terms, bias)
    assert np.isfinite(expected).all()
    for isa in ISAS:
        out = np.full((tokens, rows), np.nan, np.float32)
        linear.multiply(weights, x, out, isa, bias, (0, tokens), (0, weights.tiles), terms)
        wrong = out.view(np.uint32) != expected.view(np.uint32)
        assert not wrong.any(), (isa, np.argwhere(wrong)[:5], out[wrong][:5], expected[wrong][:5])
