"""The cuts that GGUF names: what each is known for, and that none is slow on hostile text."""

import re
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.text.pre_tokenizers import PRE_TOKENIZERS
from octavo.text.spelling import Spelling

SPELLING = Spelling({"type": "ByteLevel"})


def pieces(name: str, text: str) -> list[str]:
    found = PRE_TOKENIZERS[name].build().pre_tokenize_str(text)
    return [SPELLING.bytes_of(piece).decode() for piece, _ in found]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "I've  1234", ["I", "'ve", " ", " 1234"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("llama-bpe", "I'VE 12345", ["I", "'VE", " ", "123", "45"]),
        ("qwen2", "no12\n\nx", ["no", "1", "2", "\n\n", "x"]),
        ("tekken", "HelloWorld's", ["Hello", "World", "'s"]),
        ("gpt-4o", "HelloWorld's", ["Hello", "World's"]),
        ("kimi-k2", "ab中文cd /\n/", ["ab", "中文", "cd", " /\n", "/"]),
        ("falcon", "  1234!?", [" ", " ", "123", "4", "!?"]),
        ("default", "a1234$b", ["a", "123", "4", "$", "b"]),
        ("deepseek-v3", "中文 12345.x", ["中文", " ", "123", "45", ".x"]),
        ("deepseek-llm", "Ab ß1\n 中  ", ["Ab", " ß", "1", "\n", " ", "中", "  "]),
        ("deepseek-coder", "Ab (x)12", ["Ab", " (", "x", ")", "1", "2"]),
        ("bloom", "a  b.", ["a", " ", " b", "."]),
        ("viking", "a1b", ["a", "1", "b"]),
        ("afmoe", "a1234567", ["a", "1", "234", "567"]),
        ("afmoe", "123456", ["123", "456"]),
        ("superbpe", "a b 12345", ["a b ", "12", "345"]),
        ("superbpe", "12 123", ["12", " ", "123"]),
        ("tiny_aya", "1234567", ["1", "234", "567"]),
        ("tiny_aya", "12345x", ["123", "45", "x"]),
        ("youtu", "가나 中文ab", ["가나", " ", "中文", "ab"]),
        ("chameleon", "x  yIMGIMGABZ.", ["x", "  ", "y", "IMGIMGABZ", "."]),
        ("bailingmoe", "a\r\n\nb", ["a", "\r\n\n", "b"]),
        ("seed-coder", "!!\n", ["!!", "\n"]),
        ("ufakzeka", "İstanbul'da", ["İstanbul", "'da"]),
        ("laguna", "a\n\n b", ["a", "\n\n", " b"]),
        ("exaone-moe", "a b c1", ["a b c", "1"]),
        ("minicpm5", "1234 a", ["123", "4", " a"]),
        ("spark2_5", "a!\n\n1", ["a", "!", "\n", "\n", "1"]),
        ("jais-2", "a" + " " * 7 + "b", ["a", " " * 4, " " * 2, " b"]),
    ],
)
def test_cuts(name: str, text: str, expected: list[str]) -> None:
    assert pieces(name, text) == expected


NUMBERS = "0-9½٣"
GROUPS_OF_DIGITS = re.compile(r"(?=(\d{3})+(?!\d))")  # Python knows ٣ as a digit and ½ as none


def cuts_of_numbers(name: str, text: str) -> tuple[set[int], set[int]]:
    """Where the rule in words cuts in numbers and behind them, and all places that are so."""
    cuts, places = set(), set()
    for match in re.finditer(f"[{NUMBERS}]+", text):
        places.update(range(match.start() + 1, match.end() + 1))
        if name == "afmoe":  # groups of three from the end of whatever is a number
            cuts.update(range(match.end(), match.start(), -3))
        else:  # before groups of three digits, counted from the last of these
            cuts.update(
                match.start() + group.start() for group in GROUPS_OF_DIGITS.finditer(match[0])
            )
            cuts.add(match.end())
    return cuts & places, places


@pytest.mark.parametrize("name", ["afmoe", "superbpe"])
@settings(max_examples=150)
@given(text=st.text(st.sampled_from("1234567890½٣x .,")))
@example(text="1234½ ½1234 123½45½6789x")
def test_numbers_in_groups_from_their_end(name: str, text: str) -> None:
    """The expressions, which look at each number once, against the rule in words."""
    found = pieces(name, text)
    assert "".join(found) == text
    cuts, places = cuts_of_numbers(name, text)
    assert places.intersection(accumulate(map(len, found))) == cuts


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_long_spaces_take_linear_time(name: str) -> None:
    """Time that grew with the square of the length would take minutes each."""
    assert pieces(name, " " * 100_000 + "x")[-1].endswith("x")


@pytest.mark.parametrize("name", ["afmoe", "superbpe", "tiny_aya", "deepseek-v3"])
def test_long_numbers_take_linear_time(name: str) -> None:
    for tail in ("", "x", "!"):
        assert len(pieces(name, "1" * 100_001 + tail)) > 33_000
