"""Stop strings: the same cut for any way the text comes in pieces, nothing held without need."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.stop import StopStrings

TEXTS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def naive(
    text: str, stops: list[str], include: bool, armed_from: int = 0
) -> tuple[str, str | None]:
    """The slow twin, over the whole text: first end, then the longest."""
    for end in range(armed_from + 1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            longest = max(ended, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


@settings(max_examples=300)
@given(TEXTS, STOPS, st.booleans(), st.lists(st.integers(0, 99), max_size=6))
def test_equals_the_naive_twin(
    text: str, stops: list[str], include: bool, places: list[int]
) -> None:
    watch = StopStrings(stops, include)
    shown, matched = "", None
    for piece in cut(text, places):
        emit, matched = watch.feed(piece)
        shown += emit
        if matched is not None:
            break
    assert (shown + watch.flush(), matched) == naive(text, stops, include)


@settings(max_examples=300)
@given(TEXTS, STOPS, st.booleans(), st.integers(0, 24))
def test_unarmed_pieces(text: str, stops: list[str], include: bool, armed_from: int) -> None:
    armed_from = min(armed_from, len(text))
    watch = StopStrings(stops, include)
    shown, matched = watch.feed(text[:armed_from], armed=False)
    assert matched is None
    emit, matched = watch.feed(text[armed_from:])
    assert (shown + emit + watch.flush(), matched) == naive(text, stops, include, armed_from)


@settings(max_examples=300)
@given(TEXTS, STOPS, TEXTS)
def test_holds_only_what_may_become_a_stop_string(text: str, stops: list[str], rest: str) -> None:
    """Held text is exactly the longest end of the text that begins a stop string."""
    watch = StopStrings(stops)
    emit, matched = watch.feed(text)
    if matched is not None:
        return
    ends = [text[i:] for i in range(len(text) + 1)]
    held = next(e for e in ends if not e or any(s.startswith(e) and s != e for s in stops))
    assert emit + held == text
    assert watch.flush() == held


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "matched"),
    [
        (["ABC", "DEF", "G", "HI", "J"], ["DEFGHIJ"], "ABC", "DEFGHIJ"),
        (["ABC", "DEF"], ["zz", "CD"], "AB", "CD"),
        (["aab", "aab", "aac"], ["aabaac"], "aab", "aabaac"),
        (["x<", "|e", "n", "d|", ">y"], ["<|end|>"], "x", "<|end|>"),
        (["grü", "n!"], ["ün"], "gr", "ün"),
        (["stop here"], ["stop"], "", "stop"),
        (["abcd"], ["abcd", "bc"], "a", "bc"),
        (["xbc"], ["c", "bc"], "x", "bc"),
        (["a.c [b]"], [".", "[b]"], "a", "."),
        (["a\nb"], ["\n"], "a", "\n"),
    ],
)
def test_cases(pieces: list[str], stops: list[str], shown: str, matched: str) -> None:
    watch = StopStrings(stops)
    fed = [watch.feed(piece) for piece in pieces]
    assert "".join(emit for emit, _ in fed) == shown
    assert fed[-1][1] == watch.matched == matched
    assert watch.feed("more") == ("", matched)
    assert watch.flush() == ""


def test_no_stop_strings_hold_nothing() -> None:
    watch = StopStrings([])
    assert watch.feed("abc") == ("abc", None)
    assert StopStrings([""]).feed("abc") == ("abc", None)


def test_linear() -> None:
    """A megabyte of near misses, by characters and at once, with a long stop string."""
    near = "a" * 20_000
    watch = StopStrings([near + "b"])
    shown = sum(len(watch.feed("a")[0]) for _ in range(200_000))
    assert shown + len(watch.flush()) == 200_000
    watch = StopStrings(["a" * i + "b" for i in range(1, 60)])
    emit, matched = watch.feed("a" * 1_000_000)
    assert matched is None
    assert len(emit) == 1_000_000 - 59
