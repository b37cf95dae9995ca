"""SamplingParams: how a request's tokens are chosen and when it ends. Frozen, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from octavo.backends.base import RowSampling

if TYPE_CHECKING:
    from octavo.engine.request import Request


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Checked at the edge (`serving/params.py`); nobody checks again.

    Greedy is temperature 0. `seed` None: the engine draws one. `max_tokens` is always set (the room
    that is left, when the client set none); 0 only scores the prompt. `stop` strings are watched by
    `serving/choice.py`, not by the engine. `logprobs` and `prompt_logprobs`: None, or the number of
    alternatives (0: the token's own only).
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()  # of the model; empty with ignore_eos
    masked_until_min_tokens: frozenset[int] = frozenset()  # EOS and stop ids, ignore_eos or not
    min_tokens: int = 0
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()  # banned token sequences
    stream_interval: int = 1


def row_sampling(request: Request) -> RowSampling:
    """How the next token of a request is found."""
    params = request.params
    penalised = params.presence_penalty != 0 or params.frequency_penalty != 0
    seen = np.unique(request.token_ids).astype(np.int32) if params.repetition_penalty != 1 else None
    bias = params.logit_bias
    return RowSampling(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        seed=request.seed,
        position=request.num_output,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        seen_ids=seen,
        output_ids=np.array(list(request.output_counts), np.int32) if penalised else None,
        output_counts=(
            np.array(list(request.output_counts.values()), np.int32) if penalised else None
        ),
        bias_ids=np.array([token for token, _ in bias], np.int32) if bias else None,
        bias_values=np.array([value for _, value in bias], np.float32) if bias else None,
        allowed_ids=(
            np.array(params.allowed_token_ids, np.int32)
            if params.allowed_token_ids is not None
            else None
        ),
        banned_ids=_banned_ids(request),
        num_logprobs=-1 if params.logprobs is None else params.logprobs,
    )


def row_scoring(request: Request, position: int) -> RowSampling:
    """Only score the known token at `position` (of the whole sequence)."""
    wanted = request.params.prompt_logprobs
    return RowSampling(
        target=request.token_ids[position], num_logprobs=-1 if wanted is None else wanted
    )


def _has_begun(request: Request, word: tuple[int, ...]) -> bool:
    """Does the output end with all of the word but its last token?"""
    length = len(word) - 1
    if length == 0:
        return True
    # Cheap refusals first: words may be long, and this is asked at every token.
    if length > request.num_output or word[-2] != request.token_ids[-1]:
        return False
    return tuple(request.token_ids[-length:]) == word[:-1]


def _banned_ids(request: Request) -> np.ndarray[tuple[int], np.dtype[np.int32]] | None:
    """Ends before `min_tokens`, and the last token of each bad word that has begun."""
    params = request.params
    banned: set[int] = set()
    if request.num_output < params.min_tokens:
        banned |= params.masked_until_min_tokens
    for word in params.bad_words:
        if _has_begun(request, word):
            banned.add(word[-1])
    return np.array(sorted(banned), np.int32) if banned else None
