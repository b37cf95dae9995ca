"""A trace of some steps: the time of each operation, written as a Chrome trace file.

Format: the JSON object form of the Trace Event Format, complete events (`ph` X), times in µs; for
chrome://tracing or Perfetto.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from octavo.backends.base import OpTime

log = logging.getLogger(__name__)


class StepTrace:
    """Collects `num_steps` steps of exactly `batch_size` sequences, then writes `path`."""

    def __init__(self, num_steps: int, batch_size: int, path: Path) -> None:
        self.batch_size = batch_size
        self._path = path
        self._num_steps = num_steps
        self._steps: list[Sequence[OpTime]] = []

    @property
    def done(self) -> bool:
        """Are all steps there?"""
        return len(self._steps) >= self._num_steps

    def add(self, times: Sequence[OpTime]) -> None:
        """The operations of one step."""
        self._steps.append(times)

    def write(self) -> None:
        """Write the file. A full disk is only logged."""
        events = [
            {
                "name": time.name,
                "cat": "op",
                "ph": "X",
                "ts": time.start_s * 1e6,
                "dur": time.duration_s * 1e6,
                "pid": 0,
                "tid": 0,
                "args": {"detail": time.detail, "step": step},
            }
            for step, times in enumerate(self._steps)
            for time in times
        ]
        try:
            self._path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
        except OSError as error:
            log.error("the trace cannot be written to %s: %s", self._path, error.strerror)
        else:
            log.info("traced %d steps to %s", len(self._steps), self._path)
