"""The step's token budget follows the speed of the steps."""

from collections.abc import Callable
from typing import Any

import pytest

from octavo.config import parse_args
from octavo.engine.pace import FIRST_TOKENS, LEAST_TOKENS, STEP_TARGET_S, Pace
from octavo.engine.settings import EngineSettings
from octavo.testing.slots import HashBackend

MOST = 2048


def settled(fixed_s: float, token_s: float, target_s: float = 0.25, streams: int = 0) -> int:
    """The prompt tokens of a step on a machine whose steps take fixed_s + n * token_s."""
    pace = Pace(MOST, target_s=target_s)
    for _ in range(30):
        pace.note(1, 1, fixed_s + token_s)
        count = pace.budget(streams)
        pace.note(count, streams + 1, fixed_s + token_s * count)
    return pace.budget(streams) - streams


def test_without_a_target_the_budget_is_the_most() -> None:
    fixed = Pace(MOST, target_s=None)
    fixed.note(MOST, 1, 100.0)
    assert fixed.budget(5) == MOST


@pytest.mark.parametrize("token_s", [1 / 200, 1 / 800, 1 / 3000])
@pytest.mark.parametrize("fixed_s", [0.0, 0.01, 0.05])
def test_a_step_takes_about_the_target(fixed_s: float, token_s: float) -> None:
    assert fixed_s + settled(fixed_s, token_s) * token_s == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize(("fixed_s", "token_s"), [(0.15, 0.002), (0.3, 0.005), (2.0, 0.01)])
def test_where_a_step_costs_much_at_the_least_prompts_keep_their_speed(
    fixed_s: float, token_s: float
) -> None:
    count = settled(fixed_s, token_s)
    assert count / (fixed_s + count * token_s) > 0.7 / token_s
    assert fixed_s + count * token_s < 4.2 * fixed_s


def test_prompts_get_something_whatever_a_token_costs_and_however_many_streams_there_are() -> None:
    assert settled(0.0, 100.0) == LEAST_TOKENS
    assert settled(0.1, 100.0, streams=63) == LEAST_TOKENS


def test_it_ends_at_the_most() -> None:
    assert settled(0.0, 1e-9) == MOST
    tiny = Pace(5, target_s=0.25)
    assert tiny.budget(9) == 5


def test_one_hiccup_is_soon_forgotten() -> None:
    pace = Pace(MOST, target_s=0.25)
    for seconds in (0.25, 0.25, 5.0, *[0.25] * 8):
        pace.note(200, 1, seconds)
    assert pace.budget(0) > 180


def test_steps_that_mostly_decode_or_score_say_nothing_of_prompts() -> None:
    pace = Pace(MOST, target_s=0.25)
    pace.note(32, 32, 1.0)
    assert pace.budget(0) == FIRST_TOKENS


def test_a_told_budget_is_kept() -> None:
    def derive(*flags: str) -> EngineSettings:
        config = parse_args(["m", *flags], prog="test", environ={})
        return EngineSettings.derive(config, HashBackend(vocab_size=97).cache_groups, 4096, 1 << 40)

    assert derive().step_target_s == STEP_TARGET_S
    assert derive("--max-num-batched-tokens", "1024").step_target_s is None


def drive_to_the_end(driver: Any) -> int:
    steps = 0
    while driver.core.has_work:
        driver.step()
        steps += 1
    return steps


def test_a_slow_model_gets_a_long_prompt_in_short_steps(drive: Callable[..., Any]) -> None:
    """And answers the same."""
    prompt = [i % 50 for i in range(900)]
    answers, steps = [], []
    for target_s in (None, 1e-9):
        driver = drive(
            HashBackend(vocab_size=97),
            num_blocks=1000,
            max_model_len=2000,
            max_num_batched_tokens=MOST,
            step_target_s=target_s,
        )
        driver.submit("x", prompt, 0, max_tokens=3)
        steps.append(drive_to_the_end(driver))
        answers.append(driver.answers["x"].token_ids)
    assert answers[0] == answers[1]
    assert steps[0] == 3
    assert steps[1] > 900 // (FIRST_TOKENS + 1) + 2


def test_a_stream_goes_on_beside_a_long_prompt_before_it(drive: Callable[..., Any]) -> None:
    """The prompt is scored, so it let the stream in behind it, and then a step got small."""
    driver = drive(
        HashBackend(vocab_size=97),
        num_blocks=2000,
        max_model_len=5000,
        max_num_batched_tokens=512,
    )
    driver.submit("scored", [i % 50 for i in range(3000)], 0, max_tokens=1, prompt_logprobs=0)
    driver.step()
    driver.submit("stream", [1, 2, 3], 0, max_tokens=50)
    driver.step()
    for count in range(2, 12):
        driver.core.scheduler.max_num_batched_tokens = 0  # what pace says counts
        driver.core._pace._most = 40
        driver.step()
        assert len(driver.answers["stream"].token_ids) == count
