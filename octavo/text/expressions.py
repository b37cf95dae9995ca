"""Texts that make a stranger's regular expression slow, if anything does: repetitions of what it
is written of.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from typing import Final

# What expressions for text repeat, alone and in turn, and one character of each kind.
COMMON: Final = (
    *("a", "aA", " ", "\n", " \n", "1", "!", "a1", "a ", "é", "中", "'", "e\u0301"),
    *"AǅʰªΩя가あア\u0301\u0903\u20dd٣Ⅷ½_-()«»+$^©\t\r\u00a0\u2028\u2029\x01\u200d\ue000\u0378😀",
)
LONGEST_PART: Final = 4  # characters that are repeated together
TOKEN: Final = re.compile(
    r"\\x\{(?P<wide>[0-9a-fA-F]{1,6})\}|\\x(?P<byte>[0-9a-fA-F]{2})|\\u(?P<four>[0-9a-fA-F]{4})"
    r"|\\[pP]\{\^?(?P<property>[^}]*)\}|\\(?P<escaped>.)"
    r"|(?P<syntax>\(\?(?:<?[=!]|>|[a-z-]*[:)]|<\w+>)?|\[:\^?\w+:\]|\{\d*,?\d*\}|[()|*+?.$^])"
    r"|(?P<plain>.)",
    re.DOTALL,
)
ESCAPES: Final = {
    **dict.fromkeys("sSdDwWhHRXKGQEAzZbBN", ""),
    "s": " ",
    "d": "1",
    "w": "a",
    "S": "a",
    "D": "a",
    "W": " ",
    "h": "f",
    "R": "\n",
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "e": "\x1b",
}
PROPERTIES: Final = {"L": "a", "N": "1", "Z": " ", "P": "!", "S": "+", "M": "\u0301", "Han": "中"}


def repeated(expressions: Iterable[str]) -> list[str]:
    """What to repeat: characters of the expressions, neighbours in them, one of each kind."""
    found: dict[str, None] = {}
    for expression in expressions:
        characters, sequence = _characters(expression)
        found.update(dict.fromkeys(characters))
        for length in range(2, LONGEST_PART + 1):
            starts = range(len(sequence) - length + 1)
            found.update(dict.fromkeys(sequence[i : i + length] for i in starts))
    found.pop("", None)
    return list(found | dict.fromkeys(COMMON))


def _characters(expression: str) -> tuple[str, str]:
    """Each character that an expression names, or one for all of a kind; and those that may follow
    each other, where a set of characters is its first one.
    """
    characters, sequence = [], []
    is_set = is_first = False
    for match in TOKEN.finditer(expression):
        letter = _character(match)
        is_open = is_set
        if match["plain"] == "[" and not is_set:
            is_set = is_first = True
        elif match["plain"] == "]":
            is_set = False
        characters.append(letter)
        is_syntax = match["syntax"] is not None or match["plain"] in ("[", "]")
        if is_open and is_set and is_first and letter and match["syntax"] != "^":
            sequence.append(letter)
            is_first = False
        elif not is_open and not is_syntax:
            sequence.append(letter)
    return "".join(characters), "".join(sequence)


def _character(match: re.Match[str]) -> str:
    """A character that this piece of an expression matches; "" if none is known."""
    if code := match["wide"] or match["byte"] or match["four"]:
        number = int(code, 16)
        # The library takes text in UTF-8, which has no halves of pairs.
        return chr(number) if number <= sys.maxunicode and not 0xD800 <= number < 0xE000 else ""
    if (name := match["property"]) is not None:
        return _with_property(name)
    if (escaped := match["escaped"]) is not None:
        return ESCAPES.get(escaped, escaped)
    text = match[0]
    return text if len(text) == 1 else ""


def _with_property(name: str) -> str:
    """A character of a category or a script; "" if none is found."""
    if name in PROPERTIES:
        return PROPERTIES[name]
    characters = map(chr, (*range(0xD800), *range(0xE000, 0x1F000)))
    if len(name) <= 2:
        return next((c for c in characters if unicodedata.category(c) == name), "")
    script = name.upper().replace("_", " ") + " "
    return next((c for c in characters if unicodedata.name(c, "").startswith(script)), "")
