"""Linear kernels: each form equals the scalar one bit for bit, and that one equals NumPy.

The NumPy twin multiplies decoded weights with the same quantised activations in float64, so that
only the rounding of the fp32 sums remains between the two.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

from octavo._native import cpu_features, linear
from octavo.testing.quantise import encode
from octavo.testing.random_blocks import SCALE_OFFSETS
from octavo.weights.encodings import TensorType
from octavo.weights.quants import decode

FLOAT_TYPES = ("F32", "F16", "BF16")
Q_TYPES = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"),
)
TYPES = (*FLOAT_TYPES, *Q_TYPES)
ISAS = tuple(name for name in ("avx2",) if name in cpu_features())
SEEDS = range(2)


def width(kind):
    """Columns of the smallest row, of which others are multiples: 32, or 256."""
    return max(32, TensorType[kind].block_size)


def encoded(kind, values):
    return encode(values, TensorType[kind]).data


def pack(kind, data, rows, cols, order=None):
    weights = linear.PackedLinear(kind, rows, cols)
    # From the last tile to the first: no tile may need another.
    for tile in reversed(range(weights.tiles)):
        weights.pack(data, order, tile, tile + 1)
    return weights


def multiply(weights, rows, x, isa, bias=None, token_cuts=(), tile_cuts=(), terms=1):
    """[T, rows], computed part by part between the cuts."""
    out = np.full((len(x), rows), np.nan, np.float32)
    token_ends = (0, *token_cuts, len(x))
    tile_ends = (0, *tile_cuts, weights.tiles)
    for tokens in itertools.pairwise(token_ends):
        for tiles in itertools.pairwise(tile_ends):
            linear.multiply(weights, x, out, isa, bias, tokens, tiles, terms)
    return out


def rounded_activations(kind, x, terms=1):
    """What the kernels of this type see of x, in float64."""
    if kind not in Q_TYPES:
        return x.astype(np.float64)
    q, scale, *_ = linear.quantise(x, "scalar", terms)
    rounded = q * scale[..., None].astype(np.float64)
    return rounded.reshape(len(x), terms, -1).sum(axis=1)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def assert_same_bits(actual, expected):
    """Equal bit for bit; of a NaN only that it is one."""
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), nan)
    different = (actual.view(np.uint32) != expected.view(np.uint32)) & ~nan
    assert not different.any(), f"{different.sum()} differ, first at {np.argwhere(different)[0]}"


# The scalar form is the specification; NumPy says what it must compute.


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("rows", "blocks"), [(8, 1), (3, 2), (29, 9)])
def test_scalar_form_multiplies(kind, rows, blocks, terms):
    cols = blocks * width(kind)
    data = encoded(kind, normal(1, rows, cols))
    x = normal(2, 5, cols)
    bias = normal(3, rows)
    decoded = decode(TensorType[kind], data, (rows, cols)).astype(np.float64)
    seen = rounded_activations(kind, x, terms)
    expected = seen @ decoded.T + bias
    # Each rounding of a sum is relative to a partial sum, which the magnitudes bound.
    bound = (np.abs(seen) @ np.abs(decoded).T + np.abs(bias)) * cols * 2.0**-24
    actual = multiply(pack(kind, data, rows, cols), rows, x, "scalar", bias, terms=terms)
    assert (np.abs(actual - expected) <= bound).all()


@pytest.mark.parametrize("kind", FLOAT_TYPES)
def test_columns_of_floats_need_no_block(kind):
    data = encoded(kind, normal(4, 11, 7))
    x = normal(5, 3, 7)
    expected = x.astype(np.float64) @ decode(TensorType[kind], data, (11, 7)).T
    for isa in ("scalar", *ISAS):
        actual = multiply(pack(kind, data, 11, 7), 11, x, isa)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


BIG, SMALL = 2.0**13, 2.0**-13
SWALLOWING = [
    [BIG, SMALL, SMALL, -BIG],
    [SMALL, BIG, -BIG, 0],
    [BIG, -BIG, SMALL, 0],
    [0, BIG, -BIG, SMALL],
]
"""A big number swallows a small one that comes before it is taken away again, never after."""


@pytest.mark.parametrize("isa", ["scalar", *ISAS])
@pytest.mark.parametrize("kind", FLOAT_TYPES)
def test_columns_are_added_one_after_the_other(isa, kind):
    weights = pack(kind, encoded(kind, np.array(SWALLOWING, np.float32)), 4, 4)
    actual = multiply(weights, 4, np.ones((1, 4), np.float32), isa)
    assert actual.tolist() == [[0, 0, SMALL, SMALL]]


@pytest.mark.parametrize("isa", ["scalar", *ISAS])
@pytest.mark.parametrize("kind", Q_TYPES)
def test_blocks_are_added_one_after_the_other(isa, kind):
    """Blocks alike but for their scales; only their first columns count."""
    blocks = np.full((16, TensorType[kind].block_bytes), 0x35, np.uint8)
    scales = np.array(SWALLOWING).reshape(-1)
    if kind == "MXFP4":  # its scales are powers of two, so the codes are 6, -6 and 0
        blocks[:, 0] = [128 + np.log2(abs(scale)) if scale else 0 for scale in scales]
        blocks[:, 1:] = np.where(scales == 0, 0, np.where(scales < 0, 0xFF, 0x77))[:, None]
        one = 12
    else:
        set_scales(kind, blocks, 1, 0)
        one = decode(TensorType[kind], blocks[0], (width(kind),))[0]
        set_scales(kind, blocks, scales, 0)
    cols = 4 * width(kind)
    x = np.zeros((1, cols), np.float32)
    x[:, :: width(kind)] = 127
    actual = multiply(pack(kind, blocks.reshape(-1), 4, cols), 4, x, isa)
    assert one != 0
    assert actual.tolist() == [[0, 0, SMALL * 127 * one, SMALL * 127 * one]]


# Every other form: the same bits.


def random_blocks(kind, seed, rows, cols):
    """Bytes of [rows, cols] with any code in any place and scales from tiny to huge."""
    rng = np.random.default_rng(seed)
    encoding = TensorType[kind]
    if kind == "F32":
        exponents = rng.uniform(-30, 30, (rows, cols))
        values = rng.standard_normal((rows, cols)) * 10**exponents
        return values.astype("<f4").reshape(-1).view(np.uint8)
    blocks = rng.integers(
        0, 256, (rows * cols // encoding.block_size, encoding.block_bytes), np.uint8
    )
    if kind in ("F16", "BF16"):
        return finite_halves(blocks, kind).reshape(-1)
    for at in SCALE_OFFSETS.get(encoding, ()):  # none in MXFP4: any exponent is a number
        blocks[:, at : at + 2] = finite_halves(blocks[:, at : at + 2], "F16")
    return blocks.reshape(-1)


def set_scales(kind, blocks, scales, minimums):
    """The fp16 numbers of each of [blocks, bytes]; of those that have no minimum the scale."""
    for at, numbers in zip(SCALE_OFFSETS[TensorType[kind]], (scales, minimums), strict=False):
        halves = np.broadcast_to(np.array(numbers, "<f2"), len(blocks))
        blocks[:, at : at + 2] = halves[:, None].copy().view(np.uint8)


def finite_halves(pairs, kind):
    """Random bytes as halves, infinities and NaNs cleared (they have a test of their own)."""
    values = pairs.copy().view("<u2")
    exponent = 0x7C00 if kind == "F16" else 0x7F80
    values[values & exponent == exponent] = 0
    return values.view(np.uint8)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rows", "blocks"), [(8, 1), (1, 1), (23, 3), (71, 5)])
def test_forms_are_equal_on_random_blocks(isa, kind, seed, rows, blocks):
    cols = blocks * width(kind)
    weights = pack(kind, random_blocks(kind, seed, rows, cols), rows, cols)
    x = normal(seed, 9, cols) * np.float32(10) ** normal(seed + 1, 9, 1)
    bias = normal(seed + 2, rows)
    expected = multiply(weights, rows, x, "scalar", bias)
    assert_same_bits(multiply(weights, rows, x, isa, bias), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("tokens", [*range(1, 15), 16, 17, 63, 64, 65, 70])
def test_forms_are_equal_for_many_tokens(isa, kind, terms, tokens):
    rows, cols = 21, 2 * width(kind)
    weights = pack(kind, random_blocks(kind, 7, rows, cols), rows, cols)
    x = normal(tokens, tokens, cols)
    expected = multiply(weights, rows, x, "scalar", terms=terms)
    assert_same_bits(multiply(weights, rows, x, isa, terms=terms), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", Q_TYPES)
@pytest.mark.parametrize("code", [0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F, 0x88])
@pytest.mark.parametrize("activation", [1.0, -1.0, 0.0])
def test_extreme_codes_do_not_saturate(isa, kind, code, activation):
    """Every code at its end and every activation at +-127: the largest integer sums there are."""
    rows, cols = 8, 2 * width(kind)
    blocks = np.full((rows * 2, TensorType[kind].block_bytes), code, np.uint8)
    if kind == "MXFP4":
        blocks[:, 0] = 128
    else:
        set_scales(kind, blocks, 0.5, -3)
    data = blocks.reshape(-1)
    x = np.full((7, cols), activation * 127, np.float32)
    x[1, ::2] *= -1
    x[2, 1::4] *= -1
    x[3, 16:] *= -1
    decoded = decode(TensorType[kind], data, (rows, cols)).astype(np.float64)
    weights = pack(kind, data, rows, cols)
    expected = multiply(weights, rows, x, "scalar")
    np.testing.assert_array_equal(expected, (x @ decoded.T).astype(np.float32))  # exact integers
    assert_same_bits(multiply(weights, rows, x, isa), expected)


SCALES = [0.0, -0.0, 6e-8, -6e-8, 6.1e-5, -1.0, 65504.0, -65504.0, np.inf, np.nan]
EXPONENTS = [0, 1, 2, 3, 100, 127, 128, 253, 254, 255]  # of MXFP4


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", Q_TYPES)
@pytest.mark.parametrize("size", [1e-40, 1e-33, 1e-30, 1.0, 1e30, 3e38])
def test_forms_are_equal_at_extreme_scales(isa, kind, size):
    """fp16 zeros, subnormals, ends, infinity and NaN, against tiny and huge activations."""
    rows, cols = len(SCALES), width(kind)
    blocks = random_blocks(kind, 11, rows, cols).reshape(rows, -1)
    if kind == "MXFP4":
        blocks[:, 0] = EXPONENTS
    else:
        set_scales(kind, blocks, SCALES, SCALES[::-1])
    weights = pack(kind, blocks.reshape(-1), rows, cols)
    x = normal(12, 5, cols).clip(-1, 1) * np.float32(size)
    expected = multiply(weights, rows, x, "scalar")
    assert kind == "MXFP4" or np.isnan(expected).any(), "the NaN scale shows"
    assert_same_bits(multiply(weights, rows, x, isa), expected)


@pytest.mark.parametrize("kind", Q_TYPES)
def test_rows_of_extreme_scales_are_decoded_as_numpy_does(kind):
    rows, cols = len(SCALES), width(kind)
    blocks = random_blocks(kind, 13, rows, cols).reshape(rows, -1)
    if kind == "MXFP4":
        blocks[:, 0] = EXPONENTS
    else:
        set_scales(kind, blocks, SCALES, SCALES[::-1])
    data = blocks.reshape(-1)
    expected = decode(TensorType[kind], data, (rows, cols))
    weights = pack(kind, data, rows, cols)
    for row in range(rows):
        assert_same_bits(linear.decode_row(kind, blocks[row], cols), expected[row])
        assert_same_bits(weights.decode_row(row), expected[row])


HALVES = np.arange(1 << 16, dtype="<u2").view(np.uint8)


@pytest.mark.parametrize("isa", ["scalar", *ISAS])
@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_every_half_is_converted(isa, kind):
    """A linear of one column multiplied by one: all 65,536 values, as NumPy reads them."""
    values = HALVES.view("<f2" if kind == "F16" else ml_dtypes.bfloat16)
    with np.errstate(invalid="ignore"):
        expected = values.astype(np.float32)
    assert_same_bits(linear.decode_row(kind, HALVES, 1 << 16), expected)
    one = np.ones((1, 1), np.float32)
    actual = multiply(pack(kind, HALVES, 1 << 16, 1), 1 << 16, one, isa)
    expected[expected == 0] = 0  # a sum starts at zero, and 0 + -0 is 0
    assert_same_bits(actual[0], expected)


# A token's bits depend on nothing but the token.


@pytest.mark.parametrize("isa", ["scalar", *ISAS])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("terms", [1, 2])
def test_company_and_partition_change_nothing(isa, kind, terms):
    rows, cols, tokens = 75, 3 * width(kind), 37
    weights = pack(kind, random_blocks(kind, 21, rows, cols), rows, cols)
    x = normal(22, tokens, cols)
    whole = multiply(weights, rows, x, isa, terms=terms)
    alone = np.concatenate(
        [multiply(weights, rows, x[i : i + 1], isa, terms=terms) for i in range(tokens)]
    )
    assert_same_bits(alone, whole)
    for token_cuts, tile_cuts in [((1, 4, 20), ()), ((), (1, 2, 7)), ((36,), (3, 9))]:
        parts = multiply(weights, rows, x, isa, None, token_cuts, tile_cuts, terms)
        assert_same_bits(parts, whole)
    strangers = x.copy()
    strangers[np.arange(tokens) != 17] = np.nan
    assert_same_bits(multiply(weights, rows, strangers, isa, terms=terms)[17], whole[17])


@pytest.mark.parametrize("isa", ["scalar", *ISAS])
def test_only_the_asked_part_is_written(isa):
    weights = pack("Q4_0", random_blocks("Q4_0", 5, 21, 32), 21, 32)
    out = np.full((6, 30), 7, np.float32)  # rows of the output are longer than the linear
    linear.multiply(weights, normal(1, 6, 32), out, isa, None, (2, 5), (1, 3))
    untouched = np.ones_like(out, bool)
    untouched[2:5, 8:21] = False
    assert (out[untouched] == 7).all()
    assert (out[~untouched] != 7).all()


# Packing and decoding.


@pytest.mark.parametrize("kind", TYPES)
def test_rows_are_decoded_as_numpy_does(kind):
    rows, cols = 13, 2 * width(kind)
    data = random_blocks(kind, 31, rows, cols)
    expected = decode(TensorType[kind], data, (rows, cols))
    weights = pack(kind, data, rows, cols)
    raw_rows = data.reshape(rows, -1)
    for row in range(rows):
        assert_same_bits(linear.decode_row(kind, raw_rows[row], cols), expected[row])
        assert_same_bits(weights.decode_row(row), expected[row])


@pytest.mark.parametrize("kind", TYPES)
def test_rows_are_packed_in_the_order_asked(kind):
    cols = width(kind)
    data = random_blocks(kind, 32, 20, cols)
    order = np.random.default_rng(1).permutation(20)[:11].astype(np.int64)
    chosen = data.reshape(20, -1)[order].reshape(-1)
    x = normal(33, 2, cols)
    expected = multiply(pack(kind, chosen, 11, cols), 11, x, "scalar")
    assert_same_bits(multiply(pack(kind, data, 11, cols, order), 11, x, "scalar"), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_packed_weights_take_the_memory_of_the_file(kind):
    """Apart from the 6-bit scales of some K types, which become bytes."""
    cols = 2 * width(kind)
    data = random_blocks(kind, 34, 24, cols)
    more = {"Q3_K": 4, "Q4_K": 4, "Q5_K": 4, "IQ4_XS": 2}.get(kind, 0)  # bytes of a block
    blocks = data.size // TensorType[kind].block_bytes
    assert pack(kind, data, 24, cols).size_bytes == data.size + blocks * more


# Activations.


def test_activations_are_rounded_to_the_nearest_of_255_steps():
    x = normal(41, 4, 96)
    q, scale, scaled_sum, offset, half_sums = linear.quantise(x, "scalar")
    blocks = x.reshape(4, 3, 32)
    largest = np.abs(blocks).max(axis=2)
    assert np.array_equal(scale, largest / np.float32(127))
    steps = blocks * (np.float32(127) / largest)[..., None]
    assert np.array_equal(q, np.rint(steps).astype(np.int8))
    assert (np.abs(q.astype(int)).max(axis=2) == 127).all()
    sums = q.sum(axis=2, dtype=np.int32)
    assert np.array_equal(scaled_sum, scale * sums.astype(np.float32))
    columns = np.arange(32) % 4 // 2
    for half in (0, 1):
        part = q[:, :, columns == half].sum(axis=2, dtype=np.int32)
        assert np.array_equal(offset[:, :, half], -8 * part)
    halves = q.reshape(4, 3, 2, 16).sum(axis=3, dtype=np.int32)
    assert np.array_equal(half_sums, halves)


def test_the_second_term_holds_what_the_first_left():
    x = normal(44, 4, 96)
    parts = linear.quantise(x, "scalar", 2)
    q, scale, *_ = parts
    first = [part[0::2] for part in parts]
    for part, alone in zip(first, linear.quantise(x, "scalar"), strict=True):
        assert np.array_equal(part, alone)
    left = x.reshape(4, 3, 32) - (q[0::2] * scale[0::2, :, None].astype(np.float64))
    second = [part[1::2] for part in parts]
    alone = linear.quantise(left.astype(np.float32).reshape(4, 96), "scalar")
    for part, expected in zip(second, alone, strict=True):
        assert np.array_equal(part, expected)
    largest = np.abs(x.reshape(4, 3, 32)).max(axis=2, keepdims=True)
    error = left - q[1::2] * scale[1::2, :, None].astype(np.float64)
    assert (np.abs(error) <= largest / 64516 * 1.001).all()


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.5, 1e30, -1e37, 1e-30])
def test_constant_rows_are_quantised(value):
    q, scale, scaled_sum, *_ = linear.quantise(np.full((1, 32), value, np.float32), "scalar")
    expected = 0 if value == 0 else 127 * np.sign(value)
    assert (q == expected).all()
    np.testing.assert_allclose(scale[0, 0] * float(expected), value, rtol=1e-6)
    np.testing.assert_allclose(scaled_sum[0, 0], 32 * value, rtol=1e-6)


def test_magnitudes_below_the_floor_are_zero():
    for value, kept in ((2.0**-110, True), (2.0**-111, False), (1e-45, False)):
        q, scale, *_ = linear.quantise(np.full((1, 32), value, np.float32), "scalar")
        assert (scale[0, 0] > 0) == kept
        assert (q != 0).all() == kept


@pytest.mark.parametrize("isa", ["scalar", *ISAS])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 13, 31])
def test_a_block_that_is_not_finite_poisons_its_token_only(isa, bad, column):
    x = normal(42, 3, 256)
    x[1, 32 + column] = bad
    q, scale, scaled_sum, offset, half_sums = linear.quantise(x, isa)
    poisoned = np.zeros((3, 8), bool)
    poisoned[1, 1] = True
    assert np.array_equal(np.isnan(scale), poisoned)
    assert np.array_equal(np.isnan(scaled_sum), poisoned)
    assert not q[1, 1].any()
    assert not offset[1, 1].any()
    assert not half_sums[1, 1].any()
    for kind in Q_TYPES:
        out = multiply(pack(kind, encoded(kind, normal(43, 9, 256)), 9, 256), 9, x, isa)
        assert np.isnan(out[1]).all()
        assert np.isfinite(out[[0, 2]]).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_forms_quantise_alike(isa, terms, seed):
    rng = np.random.default_rng(seed)
    any_bits = rng.integers(0, 1 << 32, (64, 96), np.uint32).view(np.float32)
    same_exponent = (rng.integers(0, 1 << 24, (64, 96), np.uint32) | 0x3F000000).view(np.float32)
    halves = rng.integers(-254, 255, (64, 96)).astype(np.float32) / 2  # ties of the rounding
    halves[:, ::32] = 127
    halves[1] = 0
    for x in (any_bits, np.nan_to_num(any_bits), same_exponent, halves, normal(seed, 64, 96)):
        for actual, expected in zip(
            linear.quantise(x, isa, terms), linear.quantise(x, "scalar", terms), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)
