"""Decisions read from a fuzzer's bytes, so that what mutates the bytes mutates a structure."""

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Choices:
    """Each decision takes the next bytes; behind the last one all decisions are 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def is_empty(self) -> bool:
        """Whether all further decisions are 0."""
        return self._place >= len(self._data)

    def number(self, below: int) -> int:
        """0 <= number < below, and 0 where `below` is 0."""
        size = (max(below - 1, 1).bit_length() + 7) // 8
        return int.from_bytes(self.take(size), "little") % max(below, 1)

    def of(self, items: Sequence[_T]) -> _T:
        """One of them."""
        return items[self.number(len(items))]

    def chance(self, one_in: int) -> bool:
        """True once in so many times; false behind the end."""
        return self.number(one_in) == one_in - 1

    def take(self, count: int) -> bytes:
        """The next ones; fewer at the end."""
        start = self._place
        self._place += count
        return self._data[start : start + count]

    def rest(self) -> bytes:
        """All that are left."""
        return self.take(max(len(self._data) - self._place, 0))
