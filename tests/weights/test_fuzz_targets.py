"""The fuzzer's targets on a few inputs; `scripts/fuzz` runs them for as long as one likes."""

from importlib import import_module
from random import Random

import pytest

from octavo.testing.fuzz.__main__ import TARGETS
from octavo.testing.fuzz.bounds import Account, TooCostly
from octavo.testing.fuzz.choices import Choices

INPUTS = 60


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_target(name: str) -> None:
    target = import_module(f"octavo.testing.fuzz.{TARGETS[name]}")
    outcomes = set()
    for seed in range(INPUTS):
        random = Random(seed)
        outcomes.add(target.run(random.randbytes(random.randrange(1500))))
    assert len(outcomes) > 3, "the inputs reach more than the first check"


def test_choices_end_in_zeros() -> None:
    choices = Choices(b"\x05\x02\x01\xff")
    assert choices.number(4) == 1
    assert choices.number(1000) == 0x0102 % 1000
    assert choices.of("abc") == "a"
    assert choices.is_empty
    assert choices.number(9) == 0
    assert not choices.chance(2)
    assert choices.rest() == b""


def test_costs_are_refused() -> None:
    account = Account(cpu_s=-1.0, growth_bytes=1 << 40)
    with pytest.raises(TooCostly, match="CPU"), account.one_input():
        pass
    assert account.slowest_s >= 0
