"""A request's tokens are the same alone and in whatever company, and nobody's blocks leak.

The double's logits are a hash of the whole context as the cache has it, so one wrong token in one
slot changes everything after it.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PREFIXES = ([], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9, 9, 9])

requests = st.fixed_dictionaries(
    {
        "prefix": st.sampled_from(PREFIXES),
        "tail": st.lists(st.integers(0, 96), min_size=1, max_size=24),
        "max_tokens": st.integers(1, 12),
        "temperature": st.sampled_from([0.0, 1.0]),
        "seed": st.integers(0, 2**64 - 1),
        "arrives": st.integers(0, 12),
        "aborted_after": st.none() | st.integers(0, 8),
    }
)


def submit(driver: Any, name: str, r: dict[str, Any]) -> None:
    driver.submit(
        name,
        r["prefix"] + r["tail"],
        r["seed"],
        max_tokens=r["max_tokens"],
        temperature=r["temperature"],
        logprobs=2,
    )


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    several=st.lists(requests, min_size=1, max_size=7),
    block_size=st.sampled_from([1, 4, 7]),
    budget=st.integers(1, 40),
    max_num_seqs=st.integers(1, 5),
    spare_blocks=st.integers(0, 12),
    prefix_caching=st.booleans(),
)
def test_alone_and_in_company(
    drive: Callable[..., Any],
    several: list[dict[str, Any]],
    block_size: int,
    budget: int,
    max_num_seqs: int,
    spare_blocks: int,
    prefix_caching: bool,
) -> None:
    company = drive(
        block_size=block_size,
        num_blocks=-(-64 // block_size) + spare_blocks,  # small pools: much preemption
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max(budget, max_num_seqs),
        prefix_caching=prefix_caching,
    )
    for step in range(400):
        for index, r in enumerate(several):
            if r["arrives"] == step:
                submit(company, str(index), r)
            elif r["aborted_after"] is not None and step == r["arrives"] + r["aborted_after"]:
                company.abort(str(index))
        if company.core.has_work:
            company.step()
        elif step > 24:
            break
    assert not company.core.has_work
    assert not company.errors
    for (counts,) in [company.core.kv.check()]:
        assert counts.used == 0
    for index, r in enumerate(several):
        alone = drive(prefix_caching=False)
        submit(alone, "x", r)
        alone.run()
        expected, got = alone.answers["x"], company.answers[str(index)]
        if got.finish_reason == "abort":
            length = len(got.token_ids)
            assert got.token_ids == expected.token_ids[:length]
        else:
            assert got.token_ids == expected.token_ids
            assert got.logprobs == expected.logprobs
            assert got.finish_reason == expected.finish_reason == "length"


def test_the_cases_above_do_preempt_and_do_hit(drive: Callable[..., Any]) -> None:
    """The property would say little if nothing happened in it."""
    driver = drive(num_blocks=16, max_num_batched_tokens=16)
    first = [driver.submit(str(i), PREFIXES[1] + [50 + i] * 9, max_tokens=30) for i in range(4)]
    driver.run()
    assert sum(r.num_preemptions for r in first) > 0
    again = driver.submit("again", PREFIXES[1] + [50], max_tokens=1)
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
