"""The sampler: the documented order, known shares, log-probabilities, and what nobody may draw."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.backends.base import RowSampling
from octavo.backends.draw import uniform
from octavo.backends.sampler import sample

VOCAB = 259
A, B, C, D = 65, 66, 67, 68
KNOWN = {A: 4, B: 3, C: 2, D: 1}


def known_logits():
    """A, B, C, D have 4, 3, 2, 1, all others -60."""
    logits = np.full((1, VOCAB), -60, np.float32)
    logits[0, [A, B, C, D]] = [4, 3, 2, 1]
    return logits


def ids(*values):
    return np.array(values, np.int32)


def row(logits, **fields):
    """(token, logprobs) of one row."""
    out = sample(np.asarray(logits, np.float32).reshape(1, -1), [RowSampling(**fields)])
    return int(out.token_ids[0]), out.logprobs[0]


def softmax(values):
    weights = {t: math.exp(v) for t, v in values.items()}
    return {t: w / sum(weights.values()) for t, w in weights.items()}


def shares(temperature=1.0, keep=(A, B, C, D)):
    return softmax({t: v / temperature for t, v in KNOWN.items() if t in keep})


SHARES = {
    "plain": ({}, shares()),
    "cool": ({"temperature": 0.5}, shares(0.5)),
    "warm": ({"temperature": 2.0}, shares(2)),
    "top_k 2": ({"top_k": 2}, shares(keep=(A, B))),
    "top_p .8": ({"top_p": 0.8}, shares(keep=(A, B))),
    "top_p .64": ({"top_p": 0.64}, shares(keep=(A,))),
    "min_p .2": ({"min_p": 0.2}, shares(keep=(A, B))),
    "min_p .1": ({"min_p": 0.1}, shares(keep=(A, B, C))),
    "temperature before top_p": ({"temperature": 2.0, "top_p": 0.8}, shares(2, (A, B, C))),
    "top_k before top_p": ({"top_k": 2, "top_p": 0.74}, shares(keep=(A, B))),
    "min_p before top_p": ({"min_p": 0.2, "top_p": 0.74}, shares(keep=(A, B))),
    "allowed ids": ({"allowed_ids": ids(B, D)}, shares(keep=(B, D))),
    "bias": (
        {"bias_ids": ids(A, C), "bias_values": np.array([-100, 1], np.float32)},
        softmax({B: 3, C: 3, D: 1}),
    ),
    "banned": ({"banned_ids": ids(A)}, shares(keep=(B, C, D))),
    "presence": (
        {"presence_penalty": 2.0, "output_ids": ids(A), "output_counts": ids(5)},
        softmax({A: 2, B: 3, C: 2, D: 1}),
    ),
    "frequency": (
        {"frequency_penalty": 0.5, "output_ids": ids(A, B), "output_counts": ids(4, 1)},
        softmax({A: 2, B: 2.5, C: 2, D: 1}),
    ),
    "repetition": (
        {"repetition_penalty": 2.0, "seen_ids": ids(A, 0)},
        softmax({A: 2, B: 3, C: 2, D: 1}),
    ),
}


@pytest.mark.parametrize("case", SHARES)
def test_shares(case):
    fields, expected = SHARES[case]
    count = 1500
    rows = [RowSampling(**{"temperature": 1.0, "seed": seed} | fields) for seed in range(count)]
    drawn = sample(np.repeat(known_logits(), count, axis=0), rows).token_ids
    got = {t: n / count for t, n in Counter(drawn.tolist()).items()}
    assert set(got) <= set(expected)
    for token, p in expected.items():
        assert abs(got.get(token, 0) - p) <= 5 * math.sqrt(p * (1 - p) / count) + 1e-9


GREEDY = {
    "plain": ({}, A),
    "a tie goes to the lower id": ({"bias_ids": ids(B), "bias_values": np.ones(1, np.float32)}, A),
    "presence": ({"presence_penalty": 1.5, "output_ids": ids(A), "output_counts": ids(1)}, B),
    "reward": ({"presence_penalty": -2.0, "output_ids": ids(A), "output_counts": ids(1)}, A),
    "frequency": ({"frequency_penalty": 1.1, "output_ids": ids(A), "output_counts": ids(1)}, B),
    "penalties need output": ({"frequency_penalty": 2.0, "presence_penalty": 2.0}, A),
    "repetition": ({"repetition_penalty": 1.6, "seen_ids": ids(A)}, B),
    "bias": ({"bias_ids": ids(D), "bias_values": np.array([4], np.float32)}, D),
    "allowed": ({"allowed_ids": ids(C)}, C),
    "banned among allowed": ({"allowed_ids": ids(A, C), "banned_ids": ids(A)}, C),
    "top_k 1": ({"temperature": 2.0, "top_k": 1}, A),
    "top_p .01": ({"temperature": 2.0, "top_p": 0.01}, A),
    "min_p 1": ({"temperature": 2.0, "min_p": 1.0}, A),
    "tiny temperature": ({"temperature": 1e-300}, A),
    "target": ({"target": D}, D),
    # What would leave nothing is not applied, from the last rule to the first.
    "all allowed are banned": ({"allowed_ids": ids(C, D), "banned_ids": ids(C, D)}, C),
    "all are banned": ({"banned_ids": np.arange(VOCAB, dtype=np.int32)}, A),
    "none is allowed": ({"allowed_ids": ids()}, A),
    # Extreme penalties stay numbers: the banned are still banned.
    "huge penalties": (
        {
            "repetition_penalty": 1e-300,
            "seen_ids": np.arange(VOCAB, dtype=np.int32),
            "banned_ids": ids(A),
        },
        B,
    ),
}


@pytest.mark.parametrize("case", GREEDY)
def test_one_possible_token(case):
    fields, expected = GREEDY[case]
    assert row(known_logits(), **fields)[0] == expected


def test_penalties_come_after_bias():
    """Bias makes B negative, so the repetition penalty multiplies it: -1 * 2 < -1.5."""
    fields = {"repetition_penalty": 2.0, "seen_ids": ids(1)}
    bias = {"bias_ids": ids(1), "bias_values": np.array([-4], np.float32)}
    assert row([-1.5, 3.0], **fields, **bias)[0] == 0


def test_top_k_keeps_all_equals_of_the_last():
    rows = [RowSampling(temperature=1.0, top_k=2, seed=seed) for seed in range(300)]
    drawn = sample(np.tile(np.float32([2, 1, 1, 1, 0]), (300, 1)), rows).token_ids
    assert set(drawn.tolist()) == {0, 1, 2, 3}


def test_top_p_keeps_the_lower_of_equal_ids():
    rows = [RowSampling(temperature=1.0, top_p=0.5, seed=seed) for seed in range(300)]
    drawn = sample(np.zeros((300, 4), np.float32), rows).token_ids
    assert set(drawn.tolist()) == {0, 1}


def test_raw_values_and_ranks():
    fields = {"temperature": 2.0, "bias_ids": ids(A), "bias_values": np.float32([-100])}
    token, logprobs = row(known_logits(), **fields, allowed_ids=ids(A, C), num_logprobs=3)
    assert token == C
    expected = [math.log(p) for p in shares().values()]
    assert logprobs.chosen == pytest.approx(expected[2], abs=1e-6)
    assert logprobs.rank == 3
    assert logprobs.top_ids.tolist() == [A, B, C]
    np.testing.assert_allclose(logprobs.top_values, expected[:3], atol=1e-6)


def test_equal_values_share_a_rank_and_the_lower_id_is_first():
    _, logprobs = row([1, 3, 0, 3, 1, 3], target=4, num_logprobs=5)
    assert logprobs.rank == 4
    assert logprobs.top_ids.tolist() == [1, 3, 5, 0, 4]


def test_logprobs_only_where_wanted():
    assert row(known_logits())[1] is None
    assert row(known_logits(), num_logprobs=0)[1].top_ids.size == 0
    assert row(known_logits(), num_logprobs=10**6)[1].top_ids.size == VOCAB


def pack(allowed, size):
    bits = np.zeros(-(-size // 32) * 32, np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def test_a_mask_comes_before_the_raw_values():
    out = sample(
        np.repeat(known_logits(), 2, axis=0),
        [RowSampling(num_logprobs=2)] * 2,
        {1: pack([B, 258], VOCAB)},
    )
    assert out.token_ids.tolist() == [A, B]
    assert out.logprobs[0].chosen == pytest.approx(math.log(shares()[A]), abs=1e-6)
    assert (out.logprobs[1].chosen, out.logprobs[1].rank) == (pytest.approx(0, abs=1e-6), 1)
    assert out.logprobs[1].top_ids.tolist() == [B, 258]


def test_other_rules_never_break_a_mask():
    logits, masks = known_logits(), {0: pack([C, D], VOCAB)}
    for fields in ({"banned_ids": ids(C, D)}, {"allowed_ids": ids(A)}):
        assert sample(logits, [RowSampling(**fields)], masks).token_ids[0] == C


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_fail(value):
    with pytest.raises(ValueError, match="row 0: a logit is NaN or infinite"):
        row([0.0, value])


def test_a_mask_without_tokens_fails():
    with pytest.raises(ValueError, match="row 0: the grammar allows no token"):
        sample(known_logits(), [RowSampling()], {0: pack([], VOCAB)})


def test_a_target_outside_the_vocabulary_fails():
    with pytest.raises(ValueError, match="target 259"):
        row(known_logits(), target=VOCAB)


def test_minus_infinity_is_a_logit():
    rows = [RowSampling(temperature=1.0, seed=seed) for seed in range(50)]
    logits = np.tile(np.float32([-np.inf, 0, -np.inf]), (50, 1))
    assert set(sample(logits, rows).token_ids.tolist()) == {1}


def slow_twin(logits, temperature, min_p, top_k, top_p, seed, position):
    """The words of `RowSampling`, in plain Python."""
    highest = max(logits)
    weights = [math.exp((x - highest) / temperature) for x in logits]
    weights = [w if w >= min_p else 0.0 for w in weights]
    if 0 < top_k < len(logits):
        kth = sorted(logits, reverse=True)[top_k - 1]
        weights = [w if x >= kth else 0.0 for w, x in zip(weights, logits, strict=True)]
    if top_p < 1:
        total, dropped = sum(weights), 0.0
        order = sorted(range(len(weights)), key=lambda i: (weights[i], -i))
        for i in order[:-1]:
            dropped += weights[i]
            if dropped > (1 - top_p) * total:
                break
            weights[i] = 0.0
    at, reached = uniform(seed, position) * sum(weights), 0.0
    for i, w in enumerate(weights):
        reached += w
        if reached > at:
            return i
    raise AssertionError


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=40),
    st.floats(0.05, 3),
    st.one_of(st.just(0.0), st.floats(0, 1)),
    st.integers(0, 45),
    st.one_of(st.just(1.0), st.floats(0.01, 1)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 10**6),
)
def test_agrees_with_the_slow_twin(logits, temperature, min_p, top_k, top_p, seed, position):
    fields = {"temperature": temperature, "min_p": min_p, "top_k": top_k, "top_p": top_p}
    expected = slow_twin(logits, **fields, seed=seed, position=position)
    assert row(logits, **fields, seed=seed, position=position)[0] == expected


extreme = st.one_of(
    st.floats(-(2.0**127), 2.0**127, width=32), st.just(-math.inf), st.floats(-5, 5, width=32)
)


@given(st.data(), st.lists(extreme, min_size=1, max_size=30).filter(lambda x: max(x) > -math.inf))
def test_always_a_token_of_the_vocabulary(data, logits):
    """Whatever the parameters, a token comes out that the model itself does not exclude."""
    size = len(logits)
    some = st.lists(st.integers(0, size - 1), unique=True).map(lambda x: np.array(x, np.int32))
    optional = st.one_of(st.none(), some)
    penalty = st.floats(-2, 2)
    output, bias = data.draw(some), data.draw(some)
    fields = RowSampling(
        temperature=data.draw(st.one_of(st.just(0.0), st.floats(1e-6, 1e3))),
        top_k=data.draw(st.integers(0, 40)),
        top_p=data.draw(st.floats(1e-9, 1)),
        min_p=data.draw(st.floats(0, 1)),
        seed=data.draw(st.integers(0, 2**64 - 1)),
        repetition_penalty=data.draw(st.floats(1e-30, 1e30)),
        presence_penalty=data.draw(penalty),
        frequency_penalty=data.draw(penalty),
        seen_ids=data.draw(optional),
        output_ids=output,
        output_counts=np.full(output.size, 3, np.int32),
        bias_ids=bias,
        bias_values=np.full(bias.size, data.draw(st.floats(-100, 100, width=32)), np.float32),
        allowed_ids=data.draw(optional),
        banned_ids=data.draw(optional),
        num_logprobs=2,
    )
    out = sample(np.array([logits], np.float32), [fields])
    assert 0 <= out.token_ids[0] < size
    assert logits[out.token_ids[0]] > -math.inf
    assert not np.isnan(out.logprobs[0].top_values).any()
    assert not math.isnan(out.logprobs[0].chosen)


def test_the_highest_draw_stays_inside_the_vocabulary(monkeypatch):
    """The draw times the sum may round up to the sum itself; no id lies behind the last one."""
    monkeypatch.setattr("octavo.backends.sampler.uniform", lambda *_: 1.0)  # worse than can be
    for size in (1, 3, 50):
        token, _ = row(np.zeros(size), temperature=1.0)
        assert token == size - 1
    token, _ = row([0.0, 0.0, -np.inf, -1e30], temperature=1.0)
    assert token == 1, "ids that cannot be drawn are not the last either"
