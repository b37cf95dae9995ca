"""The account of one rendering of a chat template: steps, bytes and time, asked before they are
spent."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

POINTER_BYTES: Final = 8
PIECE_BYTES: Final = 64  # a small string of its own, and the pointer to it
READ_BYTES: Final = 1 << 12  # of text searched or compared in about the time of a step
CONTAINERS: Final[tuple[type, ...]] = (list, tuple, dict, set, frozenset, Namespace)
VIEWS: Final[tuple[type, ...]] = tuple(map(type, ({}.keys(), {}.values(), {}.items())))
CONTAINERS_AND_VIEWS: Final = (*CONTAINERS, *VIEWS)
SMALL: Final = frozenset((float, type(None), Undefined))  # known by class, to be fast


@dataclass(frozen=True, slots=True)
class Limits:
    """steps: turns of loops, calls of macros, functions and filters, and items that are walked,
    compared or printed; one more for each 16 bytes of input. size_bytes: all the text and lists a
    rendering makes, besides 16 times its input. one_size_bytes: the largest of them, besides twice
    the input.
    """

    steps: int = 500_000
    size_bytes: int = 64 << 20
    one_size_bytes: int = 8 << 20
    time_s: float = 5.0


class LimitExceeded(SecurityError):
    """A template asked for more than its limits."""


class Meter:
    """What is left of the limits."""

    def __init__(self, limits: Limits, input_bytes: int = 0) -> None:
        self._time_s = limits.time_s
        self._steps = self._steps_left = limits.steps + input_bytes // 16
        self._bytes = self._bytes_left = limits.size_bytes + 16 * input_bytes
        self._one_size = limits.one_size_bytes + 2 * input_bytes
        self._deadline = time.monotonic() + limits.time_s

    def tick(self, size_bytes: int = 0) -> None:
        """One step is taken, which writes `size_bytes`."""
        self._steps_left -= 1
        if self._steps_left < 0 or not self._steps_left & 63:
            self.work(0)
        if size_bytes:
            self.grow(size_bytes)

    def work(self, steps: int) -> None:
        """So many steps are about to be taken at once."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise LimitExceeded(f"more than {self._steps} loop turns and calls")
        if time.monotonic() > self._deadline:
            raise LimitExceeded(f"more than {self._time_s:g} seconds")

    def read(self, text: object) -> None:
        """A text is about to be searched or compared, each character once."""
        if isinstance(text, (str, bytes)) and len(text) >= READ_BYTES:
            self.work(len(text) // READ_BYTES)

    def grow(self, size_bytes: float) -> None:
        """A value of this size is about to be made."""
        if size_bytes > self._one_size:
            raise LimitExceeded(f"a value of more than {self._one_size >> 20} MiB")
        self._bytes_left -= int(size_bytes)
        if self._bytes_left < 0:
            raise LimitExceeded(f"more than {self._bytes >> 20} MiB of text")

    def pieces(self, value: object, count: float) -> None:
        """A text is about to be cut into so many strings."""
        self.work(int(count) >> 2)
        self.grow(size_of(value) + PIECE_BYTES * count)

    def walk(self, value: Any) -> None:
        """A value is about to be taken apart item by item. Iterators pay later, see `counted`."""
        if isinstance(value, Namespace) or not hasattr(value, "__len__"):
            return
        # Python keeps one object for each character up to U+00FF and makes all others anew.
        new = isinstance(value, str) and not value.isascii()
        self.work(len(value))
        self.grow((POINTER_BYTES + (PIECE_BYTES if new else 0)) * len(value))

    def counted(self, items: Iterator[Any]) -> Iterator[Any]:
        """The items, each paid for when it is taken."""
        for item in items:
            self.tick(size_of(item))
            yield item

    def measure(self, value: object) -> int:
        """Bytes of text in `value` when it is written out: a container that holds another one twice
        is walked twice, as printing and comparing do."""
        if not isinstance(value, CONTAINERS_AND_VIEWS):
            return size_of(value)
        total = 0
        stack: list[Any] = [value]
        while stack:
            inner = _contents(stack.pop())
            total += POINTER_BYTES * (1 + len(inner))
            self.tick()
            self._steps_left -= 3 + (len(inner) >> 3)  # what its walk takes, in turns of loops
            for item in inner:
                kind = type(item)
                if kind is str:
                    total += len(item) if item.isascii() else 4 * len(item)
                elif kind in SMALL:
                    total += POINTER_BYTES
                elif kind is int or kind is bool:
                    total += item.bit_length() >> 3
                elif isinstance(item, CONTAINERS_AND_VIEWS):
                    stack.append(item)
                else:
                    total += size_of(item)
            if total > self._one_size:
                self.grow(total)
        return total


def _contents(container: Any) -> list[Any]:
    if isinstance(container, Namespace):
        container = object.__getattribute__(container, "_Namespace__attrs")
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    return list(container)


def size_of(value: object) -> int:
    """Bytes that a value takes itself, roughly; without what a container holds."""
    if isinstance(value, str):
        return len(value) if value.isascii() else 4 * len(value)
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return POINTER_BYTES * len(value)
    if isinstance(value, int):
        return value.bit_length() >> 3
    return POINTER_BYTES
