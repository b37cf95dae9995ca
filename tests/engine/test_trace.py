"""A trace holds the wanted number of steps of the wanted size, in Chrome's format."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.backends.base import Batch, OpTime
from octavo.engine.trace import StepTrace
from octavo.testing.slots import HashBackend, SlotStep


class Timed(HashBackend):
    """Records one operation a step while profiling."""

    def __init__(self) -> None:
        super().__init__(vocab_size=31)
        self.profiling = False
        self.times: list[OpTime] = []

    def start(self, batch: Batch) -> SlotStep:
        if self.profiling:
            self.times.append(OpTime("hash", f"{len(batch.request_ids)} sequences", 2.0, 0.5))
        return super().start(batch)

    def profile(self, enabled: bool) -> list[OpTime]:
        times, self.times = self.times, []
        self.profiling = enabled
        return times


def test_only_steps_of_the_size_are_traced(drive: Callable[..., Any], tmp_path: Path) -> None:
    backend, path = Timed(), tmp_path / "trace.json"
    driver = drive(backend)
    driver.core.trace(StepTrace(3, 2, path))
    driver.submit("a", [1, 2], max_tokens=6)
    driver.step()  # one sequence: not traced
    driver.submit("b", [3], max_tokens=6)
    for _ in range(2):
        driver.step()
    assert not path.exists()
    driver.run()
    events = json.loads(path.read_text())["traceEvents"]
    assert [(e["name"], e["ph"], e["ts"], e["dur"]) for e in events] == [
        ("hash", "X", 2e6, 5e5)
    ] * 3
    assert [e["args"] for e in events] == [
        {"detail": "2 sequences", "step": step} for step in range(3)
    ]
    assert not backend.profiling


def test_a_file_that_cannot_be_written_is_logged(
    drive: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = drive(Timed())
    driver.core.trace(StepTrace(1, 1, tmp_path / "absent" / "trace.json"))
    driver.submit("a", [1, 2])
    driver.run()
    assert len(driver.answers["a"].token_ids) == 8
    assert "cannot be written" in caplog.text
