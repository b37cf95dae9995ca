"""Finds many strings at once in text that comes in pieces (Aho and Corasick, 1975): linear time."""

import re
from collections import deque
from collections.abc import Iterable, Iterator


class Automaton:
    """States are numbers; 0 is the root. A state stands for the longest suffix of the text read
    so far that is a prefix of some pattern.

    depth[s]: characters of that prefix. pattern[s]: the longest pattern that ends here, "" if none
    does. waiting[s]: length of the longest suffix that is a *proper* prefix of a pattern, so what
    may still become one.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.depth = [0]
        self.pattern = [""]
        self.waiting = [0]
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self._shorter = [0]  # the next state down the chain of suffixes where a pattern ends
        for pattern in patterns:
            self._add(pattern)
        self._longest = max(self.depth)
        self._link()
        starts = "".join(re.escape(c) for c in self._next[0])
        self._starts = re.compile(f"[{starts}]") if starts else None

    def _add(self, pattern: str) -> None:
        state = 0
        for character in pattern:
            child = self._next[state].get(character)
            if child is None:
                child = len(self._next)
                self._next[state][character] = child
                self._next.append({})
                for column in (self.waiting, self._fail, self._shorter):
                    column.append(0)
                self.pattern.append("")
                self.depth.append(self.depth[state] + 1)
            state = child
        self.pattern[state] = pattern

    def _link(self) -> None:
        """Breadth first, so that the suffix of a state, which is shorter, is complete before it."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            fail = self._fail[state]
            self._shorter[state] = fail if self.pattern[fail] else self._shorter[fail]
            self.pattern[state] = self.pattern[state] or self.pattern[fail]
            self.waiting[state] = self.depth[state] if self._next[state] else self.waiting[fail]
            for character, child in self._next[state].items():
                self._fail[child] = self.step(fail, character) if state else 0
                queue.append(child)

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while (child := self._next[state].get(character)) is None and state:
            state = self._fail[state]
        return child or 0

    def skip(self, text: str, position: int) -> int:
        """From the root: the next position where a pattern may begin, or the end of the text."""
        found = self._starts.search(text, position) if self._starts else None
        return found.start() if found else len(text)

    def suffixes(self, state: int) -> Iterator[int]:
        """Lengths of all suffixes of the text read that are prefixes of patterns, longest first."""
        while state:
            yield self.depth[state]
            state = self._fail[state]

    def occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of every occurrence of every pattern in `text`, in order of the ends."""
        state, position = 0, 0
        while position < len(text):
            if not state:
                position = self.skip(text, position)
                if position == len(text):
                    return
            state = self.step(state, text[position])
            position += 1
            found = state
            while found and self.pattern[found]:
                if len(self.pattern[found]) == self.depth[found]:
                    yield position - self.depth[found], position
                found = self._shorter[found]

    def end(self, text: str) -> int:
        """The state after the whole of `text`."""
        state = 0
        for character in text[-self._longest :]:
            state = self.step(state, character)
        return state
