"""Runs requests alone and in company: what a client sees must not depend on the others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from octavo.backends.base import Backend
from octavo.testing.engine_driver import EngineDriver
from octavo.types import FinishReason, PositionLogprobs

MOST_NEW_TOKENS = 24
"""Of a visit in a `crowd`."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request, and when its client comes and goes.

    params: of `SamplingParams`. arrives: the step before which it comes. aborted_after: so many
    steps later its client goes, if it is not answered by then; None: the client stays.
    """

    prompt: Sequence[int]
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    arrives: int = 0
    aborted_after: int | None = None


class Answer(NamedTuple):
    """All that a client sees of its request and that no company may change."""

    token_ids: list[int]
    logprobs: list[PositionLogprobs]
    prompt_logprobs: list[PositionLogprobs | None] | None
    finish_reason: FinishReason | None

    def as_far_as(self, other: "Answer") -> "Answer":
        """This answer, had its client gone when that of `other` did."""
        if other.finish_reason != "abort":
            return self
        count = len(other.token_ids)
        scores = self.prompt_logprobs if count else None  # they come with the first token
        return Answer(self.token_ids[:count], self.logprobs[:count], scores, "abort")


class Company(NamedTuple):
    """What became of visits together. answers: in the order of the visits."""

    answers: list[Answer]
    num_preemptions: int
    num_cached: int


def alone(backend: Backend, visits: Iterable[Visit], **sizes: Any) -> list[Answer]:
    """Each visit by itself, in an engine without prefix cache; nobody goes early.

    sizes: of `EngineSettings`, on top of those of `EngineDriver`; with room for every visit.
    """
    answers = []
    for visit in visits:
        driver = EngineDriver(backend, **({"prefix_caching": False} | sizes))
        driver.submit("alone", visit.prompt, visit.seed, **visit.params)
        driver.run()
        answers.append(_answer(driver, "alone"))
    return answers


def together(backend: Backend, visits: Sequence[Visit], **sizes: Any) -> Company:
    """All visits in one engine of these sizes, until each is answered or gone."""
    driver = EngineDriver(backend, **sizes)
    goes = [visit.arrives + (visit.aborted_after or 0) for visit in visits]
    for step in range(max(goes) + 1):
        for index, visit in enumerate(visits):
            if visit.arrives == step:
                driver.submit(str(index), visit.prompt, visit.seed, **visit.params)
            if visit.aborted_after is not None and goes[index] == step:
                driver.abort(str(index))
        if driver.core.has_work:
            driver.step()
    driver.run()
    if any(counts.used for counts in driver.core.kv.check()):
        raise AssertionError("blocks are in use after the last request")
    requests = [driver.requests[str(index)] for index in range(len(visits))]
    return Company(
        [_answer(driver, str(index)) for index in range(len(visits))],
        num_preemptions=sum(request.num_preemptions for request in requests),
        num_cached=sum(request.num_cached or 0 for request in requests),
    )


def _answer(driver: EngineDriver, name: str) -> Answer:
    if driver.errors:
        raise AssertionError(f"requests failed: {driver.errors}")
    got = driver.answers[name]
    return Answer(got.token_ids, got.logprobs or [], got.prompt_logprobs, got.finish_reason)


def crowd(
    seed: int, texts: Sequence[Sequence[int]], *, size: int, vocab_size: int, longest: int = 700
) -> list[Visit]:
    """Visits with long contexts, many of which begin alike; equal arguments give equal visits.

    texts: token ids that prompts begin with, each at least `longest` long. The first prompt has
    `longest` tokens, the second three quarters of that (see `tight_pool`) and the third one or two
    partitions of attention (256 positions) more or less one; the others are short. No answer has
    more than MOST_NEW_TOKENS.
    """
    random = np.random.default_rng(seed)
    edge = 256 * int(random.integers(1, 3)) + int(random.integers(-1, 2))
    lengths = [longest, longest - longest // 4, edge]
    visits = []
    for index in range(size):
        tail = random.integers(0, vocab_size, int(random.integers(1, 25))).tolist()
        if index < len(lengths):
            begin = lengths[index] - len(tail)
        else:  # few different ones, so that later visits find the blocks of earlier ones
            begin = (0, 9, 40, 64)[random.integers(4)]
        most = MOST_NEW_TOKENS if index < 2 else int(random.integers(4, MOST_NEW_TOKENS))
        leaves = index >= len(lengths) and random.random() < 0.2
        visits.append(
            Visit(
                prompt=[*texts[index % len(texts)][:begin], *tail],
                seed=int(random.integers(1 << 62)),
                # Scored prompts read no cache, so few should be; the second must be one.
                params=_params(random, most, scored=index % 4 == 1),
                arrives=index if index < 2 else int(random.integers(2, 14)),
                aborted_after=int(random.integers(1, 9)) if leaves else None,
            )
        )
    return visits


def tight_pool(visits: Sequence[Visit], block_size: int) -> int:
    """Blocks that hold the first two prompts of a crowd, but not their answers too.

    The second prompt is computed in full, sharing no block, so that somebody is preempted.
    """
    return 1 + sum(-(-len(visit.prompt) // block_size) for visit in visits[:2])


def _params(random: np.random.Generator, most: int, scored: bool) -> dict[str, Any]:
    return {
        "max_tokens": most,
        "temperature": (0.0, 0.7, 1.0)[random.integers(3)],
        "top_p": (1.0, 0.9)[random.integers(2)],
        "repetition_penalty": (1.0, 1.2)[random.integers(2)],
        "logprobs": 5,
        "prompt_logprobs": 0 if scored else None,
    }
