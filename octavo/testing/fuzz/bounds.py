"""What a stranger's input may cost, and the check that it cost no more."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class TooCostly(AssertionError):
    """An input took more time or memory than its target allows."""


@dataclass(slots=True)
class Account:
    """What the inputs of a run cost. Of one input: cpu_s seconds of all threads, and growth_bytes
    by which it may raise the largest memory that the process has had.
    """

    cpu_s: float
    growth_bytes: int
    slowest_s: float = field(default=0.0, init=False)
    largest_growth_bytes: int = field(default=0, init=False)

    @contextmanager
    def one_input(self) -> Iterator[None]:
        """Raises TooCostly at the end of an input that went beyond the bounds."""
        began, before = time.process_time(), peak_bytes()
        yield
        seconds, growth = time.process_time() - began, peak_bytes() - before
        self.slowest_s = max(self.slowest_s, seconds)
        self.largest_growth_bytes = max(self.largest_growth_bytes, growth)
        if seconds > self.cpu_s:
            raise TooCostly(f"{seconds:.2f} s of CPU time; {self.cpu_s:g} s are allowed")
        if growth > self.growth_bytes:
            raise TooCostly(f"{growth >> 20} MiB more; {self.growth_bytes >> 20} MiB are allowed")


def check_refusal(error: Exception, limit: int, never: str, lines: bool = False) -> str:
    """What it says: at most `limit` characters, on one line unless `lines`, without `never`."""
    text = str(error)
    assert len(text) < limit, text[:limit]
    assert lines or text.isprintable(), text
    assert never not in text, text
    return text


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
