"""Cuts an answer at its stop strings, in whatever pieces it comes; holds back what it must."""

from collections import deque
from collections.abc import Iterable, Sequence

from octavo.text.automaton import Automaton


def stop_automaton(stops: Iterable[str]) -> Automaton:
    """What finds the strings. Slow where they are long; never changes, so any thread may use it."""
    return Automaton(stop for stop in stops if stop)


class StopStrings:
    """Watches one answer for stop strings, in time linear in its length.

    The stop string that *ends* first in the text wins; of several that end at the same character
    the one that begins first (the longest). So the result does not depend on how the text is cut.
    `include`: the stop string itself is part of the answer; nothing is then ever held back.
    """

    def __init__(self, stops: Sequence[str] | Automaton, include: bool = False) -> None:
        """stops: the strings, or `stop_automaton` of them, which many answers may share."""
        self._automaton = stops if isinstance(stops, Automaton) else stop_automaton(stops)
        self._include = include
        self._state = 0
        self._held = _Held()
        self.matched: str | None = None

    def feed(self, text: str, armed: bool = True) -> tuple[str, str | None]:
        """Take the next piece; return what may be shown now and the stop string, once one ended.

        After a match all further text is dropped. armed=False (before `min_tokens`): a stop string
        that ends in this piece does not count, but one may begin in it.
        """
        if self.matched is not None:
            return "", self.matched
        automaton, state = self._automaton, self._state
        position = 0
        while position < len(text):
            if not state:
                position = automaton.skip(text, position)
                if position == len(text):
                    break
            state = automaton.step(state, text[position])
            position += 1
            if armed and automaton.pattern[state]:
                self.matched = automaton.pattern[state]
                self._held.append(text[:position])
                shown = self._held.take_all_but(0 if self._include else len(self.matched))
                self._held = _Held()
                return shown, self.matched
        self._state = state
        self._held.append(text)
        return self._held.take_all_but(0 if self._include else automaton.waiting[state]), None

    def flush(self) -> str:
        """The answer is over: what was held back."""
        return self._held.take_all_but(0)


class _Held:
    """A text that grows at its end and is taken from its start, each in linear time altogether."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._start = 0  # in the first piece
        self._length = 0

    def append(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)

    def take_all_but(self, kept: int) -> str:
        taken = []
        while (surplus := self._length - kept) > 0:
            piece, start = self._pieces[0], self._start
            if len(piece) - start > surplus:
                taken.append(piece[start : start + surplus])
                self._start += surplus
                self._length = kept
            else:
                taken.append(piece[start:])
                self._pieces.popleft()
                self._start = 0
                self._length -= len(piece) - start
        return "".join(taken)
