"""Quantises to super-blocks of 256 weights: Q2_K to Q6_K and IQ4_XS.

Each sub-block gets the scale (and minimum) that suits it: by least squares from where its extremes
put it, and from steps that leave its extremes out, whichever errs least. Those are rounded to what
the super-block can store, and then the weights to the nearest step of what was stored.
"""

import numpy as np
from numpy.typing import NDArray

from octavo.testing.block_packing import (
    Bytes,
    Floats,
    divide,
    dot,
    join,
    largest,
    least_squares,
    least_squares_line,
    nearest,
    pack_in_order,
    pack_planes,
    pack_scales_and_minima,
)
from octavo.weights.quants_i import IQ4_VALUES

Codes = NDArray[np.uint8]

_ROUNDS = 2  # of steps from scales and scales from steps
_SPANS = (1.0, 0.85, 0.7)  # of what lies between the extremes, which the steps cover at first
_MORE_STEPS = (0.0, -0.8, -0.4, 0.4, 0.8)  # that the largest weight is at first beyond the last


def quantise_q2_k(values: Floats) -> Bytes:
    """[blocks * 256] -> [blocks, 84]."""
    d, scales, dmin, minima, steps = _affine(values.reshape(-1, 16, 16), top=3, top_scale=15)
    packed = pack_planes(steps.reshape(-1, 2, 4, 32), 2)
    return join(scales | minima << 4, packed, d, dmin)


def quantise_q3_k(values: Floats) -> Bytes:
    """[blocks * 256] -> [blocks, 110]."""
    d, scales, steps = _symmetric(values.reshape(-1, 16, 16), half=4, half_scale=32)
    codes = (scales + 32).astype(np.uint8)
    low = pack_planes((codes & 15).reshape(-1, 2, 8), 4)
    high = pack_planes((codes >> 4).reshape(-1, 4, 4), 2)
    packed = pack_planes((steps & 3).reshape(-1, 2, 4, 32), 2)
    return join(pack_planes((steps >> 2).reshape(-1, 8, 32), 1), packed, low, high, d)


def quantise_q4_k(values: Floats) -> Bytes:
    """[blocks * 256] -> [blocks, 144]."""
    d, scales, dmin, minima, steps = _affine(values.reshape(-1, 8, 32), top=15, top_scale=63)
    packed = pack_planes(steps.reshape(-1, 4, 2, 32), 4)
    return join(d, dmin, pack_scales_and_minima(scales, minima), packed)


def quantise_q5_k(values: Floats) -> Bytes:
    """[blocks * 256] -> [blocks, 176]."""
    d, scales, dmin, minima, steps = _affine(values.reshape(-1, 8, 32), top=31, top_scale=63)
    high = pack_planes(steps >> 4, 1)
    packed = pack_planes((steps & 15).reshape(-1, 4, 2, 32), 4)
    return join(d, dmin, pack_scales_and_minima(scales, minima), high, packed)


def quantise_q6_k(values: Floats) -> Bytes:
    """[blocks * 256] -> [blocks, 210]."""
    d, scales, steps = _symmetric(values.reshape(-1, 16, 16), half=32, half_scale=128)
    low = pack_planes((steps & 15).reshape(-1, 2, 2, 64), 4)
    high = pack_planes((steps >> 4).reshape(-1, 2, 4, 32), 2)
    return join(low, high, scales, d)


def quantise_iq4_xs(values: Floats) -> Bytes:
    """[blocks * 256] -> [blocks, 136]."""
    groups = values.reshape(-1, 8, 32)
    d, scales = _signed_scales(iq4_scales(groups), half=32)
    entries = nearest(divide(groups, (d.astype(np.float32) * scales)[..., None]), IQ4_VALUES)
    codes = (scales + 32).astype(np.uint8)
    packed = pack_planes(entries.reshape(-1, 8, 2, 16), 4)
    return join(d, pack_in_order(codes >> 4, 2), pack_in_order(codes & 15, 4), packed)


def iq4_scales(groups: Floats) -> Floats:
    """[..., n] -> [...]: the value of largest magnitude at first becomes the table's largest."""
    table = np.array(IQ4_VALUES, np.float32)
    scales: Floats = largest(groups)[..., 0] / table[0]
    for _ in range(_ROUNDS):
        entries = nearest(divide(groups, scales[..., None]), IQ4_VALUES)
        scales = least_squares(groups, table[entries])
    return scales


def _affine(
    groups: Floats, top: int, top_scale: int
) -> tuple[NDArray[np.float16], Codes, NDArray[np.float16], Codes, Codes]:
    """d, scales, dmin, minima, steps of weights that are d * scale * step - dmin * minimum.

    groups: [blocks, sub-blocks, n]; steps 0..top, scales and minima 0..top_scale.
    """
    scales, low = _best_lines(groups, top)
    d, scale_codes = _unsigned_scales(scales, top_scale)
    dmin, minimum_codes = _unsigned_scales(-low, top_scale)
    minima = dmin.astype(np.float32) * minimum_codes
    stored = d.astype(np.float32) * scale_codes
    steps = np.rint(divide(groups + minima[..., None], stored[..., None])).clip(0, top)
    return d, scale_codes, dmin, minimum_codes, steps.astype(np.uint8)


def _symmetric(
    groups: Floats, half: int, half_scale: int
) -> tuple[NDArray[np.float16], NDArray[np.int8], Codes]:
    """d, scales, steps of weights that are d * scale * (step - half).

    groups: [blocks, sub-blocks, n]; steps 0..2 half - 1, scales -half_scale..half_scale - 1.
    """
    scales = _best_scales(groups, half)
    d, codes = _signed_scales(scales, half_scale)
    stored = d.astype(np.float32) * codes
    steps = np.rint(divide(groups, stored[..., None])).clip(-half, half - 1)
    return d, codes, (steps + half).astype(np.uint8)


def _best_lines(groups: Floats, top: int) -> tuple[Floats, Floats]:
    """[..., n] -> scales and minima [...], the latter not above zero: steps are 0..top."""
    bottom, height = np.minimum(groups.min(axis=-1), 0), groups.max(axis=-1)
    best = np.full(bottom.shape, np.inf, np.float32)
    best_scales, best_low = np.zeros_like(best), np.zeros_like(best)
    for span in _SPANS:
        scales = (height - bottom) * np.float32(span / top)
        low = np.minimum((height + bottom - scales * top) / 2, 0)
        for _ in range(_ROUNDS):
            steps = np.rint(divide(groups - low[..., None], scales[..., None])).clip(0, top)
            scales, low = least_squares_line(groups, steps)
            # Minima are stored without a sign; the line through zero is the best that is left.
            scales = np.where(low > 0, least_squares(groups, steps), scales)
            low = np.minimum(low, 0)
        left = groups - low[..., None] - scales[..., None] * steps
        error = dot(left, left)
        better = error < best
        best = np.where(better, error, best)
        best_scales = np.where(better, scales, best_scales)
        best_low = np.where(better, low, best_low)
    return best_scales, best_low


def _best_scales(groups: Floats, half: int) -> Floats:
    """[..., n] -> [...]: steps are -half..half - 1."""
    extremes = largest(groups)[..., 0]
    best_scales = best = np.zeros_like(extremes)
    for more in _MORE_STEPS:
        scales = extremes / np.float32(-half - more)
        for _ in range(_ROUNDS):
            steps = np.rint(divide(groups, scales[..., None])).clip(-half, half - 1)
            scales = least_squares(groups, steps)
        explained = scales * dot(groups, steps)  # of the sum of squares
        best_scales = np.where(explained > best, scales, best_scales)
        best = np.maximum(explained, best)
    return best_scales


def _unsigned_scales(scales: Floats, top: int) -> tuple[NDArray[np.float16], Codes]:
    """[blocks, n] -> their unit as fp16 [blocks, 1], and how many units each is."""
    unit = (scales.max(axis=1, keepdims=True) / np.float32(top)).astype("<f2")
    return unit, np.rint(divide(scales, unit)).clip(0, top).astype(np.uint8)


def _signed_scales(scales: Floats, half: int) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """The same of scales -half..half - 1: the largest in magnitude becomes -half."""
    unit = (largest(scales) / np.float32(-half)).astype("<f2")
    return unit, np.rint(divide(scales, unit)).clip(-half, half - 1).astype(np.int8)
