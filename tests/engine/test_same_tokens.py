"""A request's tokens are the same alone and in whatever company, and nobody's blocks leak.

The double's logits are a hash of the whole context as the cache has it, so one wrong token in one
slot changes everything after it.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings

from octavo.testing.companies import engine_sizes, visits
from octavo.testing.company import Visit, alone, together
from octavo.testing.slots import HashBackend

VOCAB = 97

PREFIX = [1, 2, 3, 4, 5, 6, 7, 8]


@settings(max_examples=80, deadline=None)
@given(several=visits(VOCAB), sizes=engine_sizes())
def test_alone_and_in_company(several: list[Visit], sizes: dict[str, Any]) -> None:
    backend = HashBackend(VOCAB)
    for whole, got in zip(
        alone(backend, several), together(backend, several, **sizes).answers, strict=True
    ):
        assert got == whole.as_far_as(got)
        assert whole.finish_reason == "length"


def test_the_cases_above_do_preempt_and_do_hit(drive: Callable[..., Any]) -> None:
    """The property would say little if nothing happened in it."""
    driver = drive(num_blocks=16, max_num_batched_tokens=16)
    first = [driver.submit(str(i), PREFIX + [50 + i] * 9, max_tokens=30) for i in range(4)]
    driver.run()
    assert sum(r.num_preemptions for r in first) > 0
    again = driver.submit("again", [*PREFIX, 50], max_tokens=1)
    driver.run()
    assert again.num_cached == 8


def test_prompt_scores_do_not_depend_on_chunks_cache_and_preemption(
    drive: Callable[..., Any],
) -> None:
    prompt = list(range(40))
    whole = drive(max_num_batched_tokens=64)
    whole.submit("x", prompt, max_tokens=0, prompt_logprobs=2)
    whole.run()
    expected = whole.answers["x"].prompt_logprobs
    assert len(expected) == 40
    assert expected[0] is None
    assert all(
        entry.chosen.token_id == token
        for entry, token in zip(expected[1:], prompt[1:], strict=True)
    )

    small = drive(num_blocks=16, max_num_batched_tokens=5, max_num_seqs=3)
    small.submit("fills the cache", prompt, max_tokens=2)
    small.run()
    small.submit("a", prompt[:20], max_tokens=30)
    small.submit("x", prompt, max_tokens=3, prompt_logprobs=2)
    small.submit("b", prompt[:9], max_tokens=30)
    small.run()
    assert small.answers["x"].prompt_logprobs == expected


def test_salts_share_nothing(drive: Callable[..., Any]) -> None:
    driver = drive()
    cached = []
    for name, salt in enumerate([None, "red", "red", "blue", None]):
        request = driver.submit(str(name), list(range(20)), cache_salt=salt, max_tokens=1)
        driver.run()
        cached.append(request.num_cached)
    assert cached == [0, 0, 16, 0, 16]
    answers = [driver.answers[str(name)].token_ids for name in range(5)]
    assert answers == [answers[0]] * 5
