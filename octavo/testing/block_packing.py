"""Puts blocks of quantised weights together: the inverse of `octavo.weights.block_fields`."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def pack_planes(fields: NDArray[np.integer], bits: int) -> Bytes:
    """[..., 8 / bits, n] fields -> [..., n] bytes; plane 0 lies in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    packed: Bytes = np.bitwise_or.reduce(fields.astype(np.uint8) << shifts, axis=-2)
    return packed


def pack_in_order(fields: NDArray[np.integer], bits: int) -> Bytes:
    """[blocks, n] fields -> [blocks, n * bits / 8] bytes; neighbours share a byte."""
    pairs = fields.reshape(len(fields), -1, 8 // bits)
    return pack_planes(pairs.swapaxes(-1, -2), bits)


def pack_scales_and_minima(scales: NDArray[np.integer], minima: NDArray[np.integer]) -> Bytes:
    """[blocks, 8] each, of 6 bits -> the 12 bytes of Q4_K and Q5_K."""
    scales, minima = scales.astype(np.uint8), minima.astype(np.uint8)
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    third = scales[:, 4:] & 15 | minima[:, 4:] << 4
    return np.concatenate((first, second, third), axis=1)


def join(*parts: NDArray[np.generic]) -> Bytes:
    """[blocks, ...] parts of any kind -> [blocks, bytes]."""
    flat = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in parts]
    return np.concatenate(flat, axis=1)


def divide(values: Floats, divisors: NDArray[np.floating]) -> Floats:
    """Where the divisor is zero, so is the result."""
    divisors = divisors.astype(np.float32)
    quotients: Floats = np.zeros_like(values)
    np.divide(values, divisors, out=quotients, where=divisors != 0)
    return quotients


def largest(groups: Floats) -> Floats:
    """The value of largest magnitude, with its sign: [..., n] -> [..., 1]."""
    places = np.abs(groups).argmax(axis=-1)[..., None]
    values: Floats = np.take_along_axis(groups, places, axis=-1)
    return values


def least_squares(groups: Floats, codes: Floats) -> Floats:
    """[..., n] twice -> [...]: the factor that brings codes closest to the values."""
    return divide(dot(groups, codes), dot(codes, codes))


def least_squares_line(groups: Floats, codes: Floats) -> tuple[Floats, Floats]:
    """[..., n] twice -> [...] twice: factor and summand, the same for codes that are all alike."""
    mean, mean_code = groups.mean(axis=-1), codes.mean(axis=-1)
    factor = least_squares(groups - mean[..., None], codes - mean_code[..., None])
    return factor, mean - factor * mean_code


def nearest(values: Floats, table: tuple[int, ...]) -> Bytes:
    """The place of the integer of `table` that is closest to each value.

    Halves of neighbouring table entries are multiples of 1/2, so floor(2 v) decides.
    """
    low, high = 2 * min(table), 2 * max(table) + 1
    middles = (np.arange(low, high + 1) + 0.5) / 2
    distances = np.abs(middles[:, None] - np.array(table, np.float64))
    places = distances.argmin(axis=1).astype(np.uint8)
    found: Bytes = places[(np.floor(2 * values).clip(low, high) - low).astype(np.int16)]
    return found


def dot(a: Floats, b: Floats) -> Floats:
    """[..., n] twice -> [...]: the sums of the products."""
    product: Floats = np.einsum("...n,...n->...", a, b)
    return product
