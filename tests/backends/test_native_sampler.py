"""The C++ sampler against its NumPy twin, and its instruction sets against each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import _native
from octavo.backends import sampler as twin
from octavo.backends.base import RowSampling

ISAS = [isa for isa in ("scalar", "avx2") if isa in _native.cpu_features()]


def native(logits, rows, masks=None, *, threads=1, isa="auto"):
    return _native.sample(np.ascontiguousarray(logits, np.float32), rows, masks, threads, isa)


def pack(allowed):
    bits = np.zeros(-(-allowed.size // 32) * 32, np.uint8)
    bits[: allowed.size] = allowed
    return np.packbits(bits, bitorder="little").view(np.int32)


def random_rows(count, size, seed):
    """Rows of all sorts: (logits [count, size], rules, masks)."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((count, size), np.float32) * 3
    rows, masks = [], {}

    def ids(share):
        return np.flatnonzero(random.random(size) < share).astype(np.int32)

    def maybe(value):
        return value if random.random() < 0.3 else None

    for r in range(count):
        output, bias = ids(0.05), ids(0.05)
        rows.append(
            RowSampling(
                temperature=random.choice([0.0, 0.3, 1.0, 1.7]),
                top_k=int(random.choice([0, 1, 5, 40, 300])),
                top_p=random.choice([1.0, 0.95, 0.5, 0.05]),
                min_p=random.choice([0.0, 0.0, 0.02, 0.3]),
                seed=int(random.integers(0, 2**63)),
                position=r,
                repetition_penalty=random.choice([1.0, 1.0, 1.3, 0.8]),
                presence_penalty=random.choice([0.0, 0.5, -1.0]),
                frequency_penalty=random.choice([0.0, 0.2]),
                seen_ids=maybe(ids(0.1)),
                output_ids=output,
                output_counts=random.integers(1, 9, output.size, np.int32),
                bias_ids=bias,
                bias_values=random.standard_normal(bias.size, np.float32),
                allowed_ids=maybe(ids(0.4)),
                banned_ids=maybe(ids(0.2)),
                target=int(random.integers(0, size)) if r % 7 == 3 else -1,
                num_logprobs=int(random.choice([-1, 0, 3, 200, size])),
            )
        )
        if r % 3 == 0:
            allowed = random.random(size) < 0.5
            allowed[random.integers(size)] = True
            masks[r] = pack(allowed)
    return logits, rows, masks


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [5, 64, 259, 1000])
def test_agrees_with_the_twin(size, isa):
    logits, rows, masks = random_rows(150, size, size)
    expected = twin.sample(logits, rows, masks)
    token_ids, logprobs = native(logits, rows, masks, isa=isa)
    assert token_ids.dtype == np.int32
    assert token_ids.tolist() == expected.token_ids.tolist()
    for ours, theirs in zip(logprobs, expected.logprobs, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is None:
            continue
        chosen, rank, top_ids, top_values = ours
        assert chosen == pytest.approx(theirs.chosen, abs=1e-5)
        assert rank == theirs.rank
        assert top_ids.tolist() == theirs.top_ids.tolist()
        np.testing.assert_allclose(top_values, theirs.top_values, atol=1e-5)


def as_bytes(result):
    token_ids, logprobs = result
    return token_ids.tolist(), [
        row and (np.float32(row[0]).tobytes(), row[1], row[2].tobytes(), row[3].tobytes())
        for row in logprobs
    ]


def test_instruction_sets_threads_and_company_change_nothing():
    logits, rows, masks = random_rows(60, 777, 1)
    expected = as_bytes(native(logits, rows, masks, isa="scalar"))
    for isa in ISAS:
        for threads in (1, 2, 3):
            assert as_bytes(native(logits, rows, masks, threads=threads, isa=isa)) == expected
    for r in range(0, 60, 7):
        mask = {0: masks[r]} if r in masks else None
        token_ids, logprobs = as_bytes(native(logits[r : r + 1], rows[r : r + 1], mask))
        assert (token_ids[0], logprobs[0]) == (expected[0][r], expected[1][r])


extreme = st.one_of(
    st.floats(-(2.0**127), 2.0**127, width=32), st.just(-math.inf), st.floats(-5, 5, width=32)
)


@given(st.data(), st.lists(extreme, min_size=1, max_size=40).filter(lambda x: max(x) > -math.inf))
def test_always_a_token_of_the_vocabulary(data, logits):
    """Whatever the parameters, a token comes out that the model itself does not exclude."""
    size = len(logits)
    some = st.lists(st.integers(0, size - 1), unique=True).map(lambda x: np.array(x, np.int32))
    optional = st.one_of(st.none(), some)
    output, bias = data.draw(some), data.draw(some)
    rules = RowSampling(
        temperature=data.draw(st.one_of(st.just(0.0), st.just(1e-300), st.floats(1e-6, 1e3))),
        top_k=data.draw(st.integers(0, 50)),
        top_p=data.draw(st.floats(1e-9, 1)),
        min_p=data.draw(st.floats(0, 1)),
        seed=data.draw(st.integers(0, 2**64 - 1)),
        repetition_penalty=data.draw(st.floats(1e-30, 1e30)),
        presence_penalty=data.draw(st.floats(-2, 2)),
        frequency_penalty=data.draw(st.floats(-2, 2)),
        seen_ids=data.draw(optional),
        output_ids=output,
        output_counts=np.full(output.size, 3, np.int32),
        bias_ids=bias,
        bias_values=np.full(bias.size, data.draw(st.floats(-100, 100, width=32)), np.float32),
        allowed_ids=data.draw(optional),
        banned_ids=data.draw(optional),
        num_logprobs=2,
    )
    results = [native(np.float32([logits]), [rules], isa=isa) for isa in ISAS]
    token_ids, ((chosen, rank, _, top_values),) = results[0]
    assert logits[token_ids[0]] > -math.inf
    assert not math.isnan(chosen)
    assert 1 <= rank <= size
    assert not np.isnan(top_values).any()
    assert all(as_bytes(result) == as_bytes(results[0]) for result in results)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = twin.sample(np.float32([logits]), [rules])
    if rules.temperature == 0:
        assert token_ids.tolist() == expected.token_ids.tolist()


def test_shares_of_a_large_vocabulary():
    """Each of four likely tokens, far apart, as often as its weight says."""
    count, likely = 2000, [3, 63, 64, 900]
    logits = np.full((1, 1000), -50, np.float32)
    logits[0, likely] = np.log([0.4, 0.3, 0.2, 0.1])
    rows = [RowSampling(temperature=1.0, seed=seed) for seed in range(count)]
    token_ids, _ = native(np.repeat(logits, count, axis=0), rows)
    for token, share in zip(likely, (0.4, 0.3, 0.2, 0.1), strict=True):
        deviation = math.sqrt(share * (1 - share) / count)
        assert abs(np.mean(token_ids == token) - share) < 5 * deviation


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("at", [0, 8, 18])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_fail(value, at, isa):
    logits = np.zeros((2, 19), np.float32)
    logits[1, at] = value
    with pytest.raises(ValueError, match="row 1: a logit is NaN or infinite"):
        native(logits, [RowSampling()] * 2, isa=isa)


def test_what_cannot_be_sampled_fails():
    logits = np.zeros((1, 40), np.float32)
    with pytest.raises(ValueError, match="row 0: the grammar allows no token"):
        native(logits, [RowSampling()], {0: np.zeros(2, np.int32)})
    with pytest.raises(ValueError, match="row 0: the grammar's mask is shorter"):
        native(logits, [RowSampling()], {0: np.ones(1, np.int32)})
    with pytest.raises(ValueError, match="row 0: target 40"):
        native(logits, [RowSampling(target=40)])
    with pytest.raises(ValueError, match="row 0: token id 40"):
        native(logits, [RowSampling(banned_ids=np.array([40], np.int32))])
    with pytest.raises(IndexError, match="row that the step does not have"):
        native(logits, [RowSampling()], {1: np.ones(2, np.int32)})
