"""The step's token budget follows the speed of the steps."""

from collections.abc import Callable
from typing import Any

import pytest

from octavo.config import parse_args
from octavo.engine.pace import FIRST_TOKENS, LEAST_TOKENS, STEP_TARGET_S, Pace
from octavo.engine.settings import EngineSettings
from octavo.testing.slots import HashBackend


def pace(most: int = 2048, *, max_num_seqs: int = 8, target_s: float | None = 0.25) -> Pace:
    return Pace(most, max_num_seqs=max_num_seqs, target_s=target_s)


def test_without_a_target_the_budget_is_the_most() -> None:
    fixed = pace(target_s=None)
    fixed.note(2048, 100.0)
    assert fixed.budget() == 2048


def test_the_budget_is_what_fits_the_target() -> None:
    p = pace()
    assert p.budget() == FIRST_TOKENS
    for _ in range(20):
        count = p.budget()
        p.note(count, count / 800)
    assert p.budget() == pytest.approx(800 * 0.25, abs=2)
    for _ in range(20):  # twice as fast now
        count = p.budget()
        p.note(count, count / 1600)
    assert p.budget() == pytest.approx(1600 * 0.25, abs=2)


def test_it_stays_between_its_ends() -> None:
    slow, fast, crowded = pace(), pace(), pace(max_num_seqs=200)
    slow.note(512, 1000.0)
    assert slow.budget() == LEAST_TOKENS
    fast.note(512, 0.0)
    assert fast.budget() == 2048
    crowded.note(512, 1000.0)
    assert crowded.budget() == 200, "every stream gets its token"
    tiny = pace(5)
    tiny.note(512, 1000.0)
    assert tiny.budget() == 5


def test_steps_of_few_tokens_say_nothing() -> None:
    p = pace()
    p.note(1, 1.0)
    assert p.budget() == FIRST_TOKENS


def test_a_told_budget_is_kept() -> None:
    def derive(*flags: str) -> EngineSettings:
        config = parse_args(["m", *flags], prog="test", environ={})
        return EngineSettings.derive(config, HashBackend(vocab_size=97).cache_groups, 4096, 1 << 40)

    assert derive().step_target_s == STEP_TARGET_S
    assert derive("--max-num-batched-tokens", "1024").step_target_s is None


def test_a_slow_model_gets_a_long_prompt_in_short_steps(drive: Callable[..., Any]) -> None:
    """And answers the same."""
    prompt = [i % 50 for i in range(900)]
    answers, steps = [], []
    for target_s in (None, 1e-9):
        driver = drive(
            HashBackend(vocab_size=97),
            num_blocks=1000,
            max_model_len=2000,
            max_num_batched_tokens=2048,
            step_target_s=target_s,
        )
        driver.submit("x", prompt, 0, max_tokens=3)
        count = 0
        while driver.core.has_work:
            driver.step()
            count += 1
        answers.append(driver.answers["x"].token_ids)
        steps.append(count)
    assert answers[0] == answers[1]
    assert steps[0] == 3
    assert steps[1] > 900 // FIRST_TOKENS + 3
