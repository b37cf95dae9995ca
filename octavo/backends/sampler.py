"""The sampler in NumPy: the definition of how a row of logits becomes a token.

The order is vLLM's, see `RowSampling`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.backends.base import Float32Array, Int32Array, RowLogprobs, RowSampling, StepOutput
from octavo.backends.draw import uniform

Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_LARGEST = np.finfo(np.float32).max


def sample(
    logits: Float32Array,
    rows: Sequence[RowSampling],
    masks: Mapping[int, Int32Array] | None = None,
) -> StepOutput:
    """logits [R, vocab_size], one RowSampling a row; masks as in `base.Step.finish`.

    ValueError: a logit is NaN or +inf, a mask allows no token, a target is not in the vocabulary.
    The logits are not changed.
    """
    token_ids = np.empty(len(rows), np.int32)
    logprobs: list[RowLogprobs | None] = []
    for r, row in enumerate(rows):
        raw = _masked(logits[r], None if masks is None else masks.get(r), r)
        with np.errstate(over="ignore"):  # differences of extreme logits: -inf is right
            chosen = _target(row.target, raw.size) if row.target >= 0 else _choose(raw, row)
            wanted = row.num_logprobs >= 0
            logprobs.append(_logprobs(raw, chosen, row.num_logprobs) if wanted else None)
        token_ids[r] = chosen
    return StepOutput(token_ids, tuple(logprobs))


def _masked(logits: Float32Array, mask: Int32Array | None, r: int) -> Float32Array:
    if not np.all(logits < np.inf):  # NaN compares false too
        raise ValueError(f"row {r}: a logit is NaN or infinite")
    if mask is None:
        return logits
    bits = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), bitorder="little")
    allowed = bits[: logits.size].astype(bool)
    if not allowed.any():
        raise ValueError(f"row {r}: the grammar allows no token")
    return np.where(allowed, logits, np.float32(-np.inf))


def _target(target: int, vocab_size: int) -> int:
    if target >= vocab_size:
        raise ValueError(f"target {target} is not below the vocabulary of {vocab_size}")
    return target


def _logprobs(raw: Float32Array, chosen: int, count: int) -> RowLogprobs:
    """log_softmax of the row; rank and order go by the logits themselves."""
    highest = raw.max()
    total = np.sum(np.exp(raw - highest), dtype=np.float64)
    normaliser = highest + np.float32(np.log(total))
    count = min(count, raw.size)
    top = np.empty(0, np.int32)
    if count:
        least = np.partition(raw, raw.size - count)[raw.size - count]
        ids = np.flatnonzero(raw >= least)
        top = ids[np.argsort(-raw[ids], kind="stable")][:count].astype(np.int32)
    rank = 1 + int(np.count_nonzero(raw > raw[chosen]))
    return RowLogprobs(float(raw[chosen] - normaliser), rank, top, raw[top] - normaliser)


def _choose(raw: Float32Array, row: RowSampling) -> int:
    scores = _penalised(_biased(_restricted(raw, row), row), row)
    if row.temperature <= 0:
        return int(np.argmax(scores))  # the lowest id of equals
    weights = _weights(scores, row)
    cumulative = np.cumsum(weights)  # float64, by token id
    at = uniform(row.seed, row.position) * cumulative[-1]
    # The product may round up to the whole sum; the first id that reaches it is the last drawable.
    last = np.searchsorted(cumulative, cumulative[-1], side="left")
    return int(min(np.searchsorted(cumulative, at, side="right"), last))


def _restricted(raw: Float32Array, row: RowSampling) -> Float32Array:
    """Allowed ids, then banned ids. A rule that would leave no token at all is not applied."""
    scores = raw
    if row.allowed_ids is not None:
        keep = np.zeros(raw.size, bool)
        keep[row.allowed_ids] = True
        scores = _keep(scores, keep)
    if row.banned_ids is not None and row.banned_ids.size:
        keep = np.ones(raw.size, bool)
        keep[row.banned_ids] = False
        scores = _keep(scores, keep)
    return scores


def _keep(scores: Float32Array, keep: BoolArray) -> Float32Array:
    kept = np.where(keep, scores, np.float32(-np.inf))
    return kept if kept.max() > -np.inf else scores


def _biased(scores: Float32Array, row: RowSampling) -> Float32Array:
    if row.bias_ids is None or row.bias_values is None:
        return scores
    scores = scores.copy()
    scores[row.bias_ids] += row.bias_values
    return scores


def _penalised(scores: Float32Array, row: RowSampling) -> Float32Array:
    repetition = row.repetition_penalty != 1 and row.seen_ids is not None
    counted = row.frequency_penalty != 0 or row.presence_penalty != 0
    if not repetition and not counted:
        return scores
    out = scores > -np.inf
    scores = scores.astype(np.float64)
    if repetition and row.seen_ids is not None:
        seen = scores[row.seen_ids]
        penalty = row.repetition_penalty
        scores[row.seen_ids] = np.where(seen > 0, seen / penalty, seen * penalty)
    if counted and row.output_ids is not None and row.output_counts is not None:
        fall = row.frequency_penalty * row.output_counts + row.presence_penalty
        scores[row.output_ids] -= fall
    # An extreme penalty stays a number, so that what is still allowed can still be drawn.
    finite = np.clip(scores, -_LARGEST, _LARGEST).astype(np.float32)
    return np.where(out, finite, np.float32(-np.inf))


def _weights(scores: Float32Array, row: RowSampling) -> Float64Array:
    """Temperature, min_p, top_k, top_p: [vocab_size], unnormalised: the largest 1, cut ones 0."""
    wide = scores.astype(np.float64)
    scaled: Float64Array = (wide - wide.max()) / row.temperature
    weights: Float64Array = np.exp(scaled)
    if row.min_p > 0:
        weights[weights < row.min_p] = 0
    if 0 < row.top_k < weights.size:
        kth = np.partition(scaled, weights.size - row.top_k)[weights.size - row.top_k]
        weights[scaled < kth] = 0
    if row.top_p < 1:
        weights = _nucleus(weights, row.top_p)
    return weights


def _nucleus(weights: Float64Array, top_p: float) -> Float64Array:
    """Drop, from the least likely up, what together is no more than 1 - top_p of the whole.

    Of equals the higher id goes first. The most likely token always stays.
    """
    limit = (1 - top_p) * weights.sum()
    # What is below limit / n is dropped for sure, however much of it there is: it needs no sorting.
    small = weights < limit / weights.size
    ids = np.flatnonzero(~small)[::-1]
    ids = ids[np.argsort(weights[ids], kind="stable")]
    cumulative = weights[small].sum() + np.cumsum(weights[ids])
    dropped = cumulative <= limit
    dropped[-1] = False
    kept = np.where(small, 0.0, weights)
    kept[ids[dropped]] = 0
    return kept
