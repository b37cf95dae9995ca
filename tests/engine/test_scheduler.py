"""The rules of one step: order, budget, admission, preemption, ends."""

from collections.abc import Callable
from typing import Any

from octavo.engine.request import Request, RequestStatus
from octavo.engine.sampling import SamplingParams
from octavo.engine.scheduler import MAX_SCORED_TOKENS
from octavo.engine.stream import TokenDelta

Drive = Callable[..., Any]
LONG = SamplingParams(max_tokens=9, temperature=0.0)


def plan(driver: Any) -> list[tuple[str, int, int]]:
    """Plan a step without running it."""
    schedule = driver.core.scheduler.schedule()
    return [(item.request.request_id, item.start, item.num_tokens) for item in schedule.work]


def test_decodes_ride_with_a_chunk_of_a_long_prompt(drive: Drive) -> None:
    driver = drive(max_num_batched_tokens=10)
    driver.submit("short", [1, 2, 3])
    driver.step()
    driver.submit("long", list(range(30)))
    assert plan(driver) == [("short", 3, 1), ("long", 0, 9)]


def test_nobody_overtakes_the_head_of_the_queue(drive: Drive) -> None:
    driver = drive(num_blocks=16)
    driver.submit("runs", [1] * 30, max_tokens=20)
    driver.step()
    driver.submit("big", [2] * 40)
    driver.submit("small", [3])
    assert plan(driver) == [("runs", 30, 1)]
    assert [r.request_id for r in driver.core.scheduler.waiting] == ["big", "small"]


def test_the_whole_prompt_must_fit_before_a_chunk_of_it_runs(drive: Drive) -> None:
    driver = drive(num_blocks=16, max_num_batched_tokens=8)
    driver.submit("a", [1] * 40)
    driver.submit("b", [2] * 40)
    for _ in range(4):
        driver.step()
    assert [r.request_id for r in driver.core.scheduler.running] == ["a"]


def test_the_last_admitted_is_preempted_and_comes_back_first(drive: Drive) -> None:
    driver = drive(num_blocks=16, block_size=4, prefix_caching=False)
    first = driver.submit("first", [1] * 28, max_tokens=30)
    second = driver.submit("second", [2] * 27, max_tokens=30)
    third = driver.submit("third", [3] * 4, max_tokens=30)
    while second.num_preemptions + third.num_preemptions == 0:
        driver.step()
    assert third.num_preemptions == 1
    assert first.num_preemptions == second.num_preemptions == 0
    assert third.status is RequestStatus.PREEMPTED
    assert driver.core.scheduler.waiting[0] is third
    driver.run()
    assert [len(driver.answers[n].token_ids) for n in ("first", "second", "third")] == [30] * 3


def test_at_most_max_num_seqs_run(drive: Drive) -> None:
    driver = drive(max_num_seqs=2)
    for name in "abc":
        driver.submit(name, [1, 2])
    driver.step()
    assert len(driver.core.scheduler.running) == 2
    assert len(driver.core.scheduler.waiting) == 1


def test_one_token_is_always_computed(drive: Drive) -> None:
    driver = drive(block_size=4)
    driver.submit("a", list(range(8)), max_tokens=1)
    driver.run()
    hit = driver.submit("b", list(range(8)), max_tokens=1)
    assert plan(driver) == [("b", 4, 4)]
    assert hit.num_cached == 4


def test_rows_of_scored_prompts_are_bounded_in_a_step(drive: Drive) -> None:
    length = 2 * MAX_SCORED_TOKENS
    driver = drive(max_model_len=1024, num_blocks=256, max_num_batched_tokens=1024)
    driver.submit("x", [i % 97 for i in range(length)], max_tokens=1, prompt_logprobs=0)
    assert plan(driver) == [("x", 0, MAX_SCORED_TOKENS)]


def test_order_of_the_stop_checks(drive: Drive) -> None:
    driver = drive()
    driver.submit("x", [1, 2, 3], max_tokens=12)
    driver.run()
    tokens = driver.answers["x"].token_ids

    def ends(**params: object) -> tuple[int, str, int | None]:
        again = drive()
        again.submit("x", [1, 2, 3], **({"max_tokens": 12} | params))
        again.run()
        answer = again.answers["x"]
        return len(answer.token_ids), answer.finish_reason, answer.stop_reason

    third = frozenset({tokens[2]})
    assert ends(eos_token_ids=third) == (3, "stop", None)
    assert ends(stop_token_ids=third) == (3, "stop", tokens[2])
    assert ends(eos_token_ids=third, max_tokens=3) == (3, "stop", None), "EOS as the last allowed"
    assert ends(max_tokens=3) == (3, "length", None)
    masked = {"masked_until_min_tokens": third, "eos_token_ids": third, "min_tokens": 5}
    assert ends(**masked)[0] >= 5


def test_the_model_length_ends_a_request(drive: Drive) -> None:
    driver = drive(max_model_len=16, num_blocks=4)
    driver.submit("x", [1] * 10, max_tokens=100)
    driver.run()
    assert len(driver.answers["x"].token_ids) == 6
    assert driver.answers["x"].finish_reason == "length"


def test_bad_words_ban_the_last_token_of_what_has_begun(drive: Drive) -> None:
    driver = drive()
    driver.submit("x", [1, 2, 3], max_tokens=6)
    driver.run()
    a, b, *_ = driver.answers["x"].token_ids
    for word in ((a,), (a, b)):
        other = drive()
        other.submit("x", [1, 2, 3], max_tokens=6, bad_words=(word,))
        other.run()
        got = other.answers["x"].token_ids
        assert got[: len(word)] != list(word)
        assert got[: len(word) - 1] == list(word[:-1])


def test_a_prompt_is_shared_until_the_first_token(drive: Drive) -> None:
    driver, prompt = drive(max_num_seqs=1), [1, 2, 3]
    first, second = (Request(name, prompt, LONG, seed=0) for name in "ab")
    assert first.token_ids is second.token_ids is prompt
    driver.requests |= {"a": first, "b": second}
    driver.answers |= {"a": TokenDelta(), "b": TokenDelta()}
    driver.core.add(first)
    driver.core.add(second)
    driver.run()
    assert prompt == [1, 2, 3]
    assert driver.answers["a"].token_ids == driver.answers["b"].token_ids


def test_bad_words_longer_than_the_output_cannot_match(drive: Drive) -> None:
    driver = drive()
    driver.submit("x", [1, 2, 3], max_tokens=6)
    driver.run()
    tokens = driver.answers["x"].token_ids
    other = drive()
    words = ((*([5] * 5000), tokens[0]), (3, tokens[0]))  # the second would begin in the prompt
    other.submit("x", [1, 2, 3], max_tokens=6, bad_words=words)
    other.run()
    assert other.answers["x"].token_ids == tokens
