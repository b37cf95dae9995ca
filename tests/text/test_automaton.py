"""The automaton finds what a naive search finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.automaton import Automaton

PATTERNS = st.lists(st.text("ab]", min_size=1, max_size=4), max_size=5)
TEXTS = st.text("ab]", max_size=20)


@settings(max_examples=300)
@given(PATTERNS, TEXTS)
def test_occurrences(patterns: list[str], text: str) -> None:
    naive = {
        (start, start + len(pattern))
        for pattern in patterns
        for start in range(len(text))
        if text.startswith(pattern, start)
    }
    found = list(Automaton(patterns).occurrences(text))
    assert len(found) == len(set(found))
    assert set(found) == naive


@settings(max_examples=300)
@given(PATTERNS, TEXTS)
def test_end(patterns: list[str], text: str) -> None:
    automaton = Automaton(patterns)
    lengths = [
        length
        for length in range(len(text), 0, -1)
        if any(pattern.startswith(text[len(text) - length :]) for pattern in patterns)
    ]
    assert list(automaton.suffixes(automaton.end(text))) == lengths
