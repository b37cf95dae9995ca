"""Damages JSON values and texts: wrong kinds, huge and odd numbers, deep nesting, repeated keys."""

import json
from copy import deepcopy
from typing import Any

from octavo.testing.fuzz.choices import Choices

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 255, 1 << 31, 1 << 63, 1 << 64, -(1 << 70), 10**300, 1.5),
    *(float("nan"), float("inf"), 1e-300, "", "x", "a\nb", "\ud800", "é\u202e", "x" * 3000, [], {}),
    *([0], [1, 2], [1 << 62, 2], [[]], {"a": 1}, [None], ["x"], "../x", "/etc/passwd", "\0", "##"),
    *("F32", "F8_E5M2", "linear", "yarn", "dynamic", "gelu", "BPE", "WordPiece", "Unigram"),
)
DEEP = "@deep@"  # written as arrays in arrays
MAX_PICKED = 400  # values of one document among which one is damaged


def damaged(choices: Choices, value: Any) -> Any:
    """A copy with up to four changes somewhere inside; `value` itself stays."""
    value = json.loads(json.dumps(value))
    for _ in range(choices.number(5)):
        place = choices.of(_places(value) or [(None, None)])
        _change(choices, *place)
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Containers and keys or indexes of what is inside, the outer ones first."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    for item in waiting:
        keys = list(item) if isinstance(item, dict) else range(len(item))
        for key in keys:
            found.append((item, key))
            if isinstance(item[key], dict | list):
                waiting.append(item[key])
            if len(found) >= MAX_PICKED:
                return found
    return found


def _change(choices: Choices, container: Any, key: Any) -> None:
    if container is None:
        return
    change = choices.number(8)
    if change == 0:
        del container[key]
    elif change == 1 and isinstance(container, dict):
        container[choices.of(("x", "", "type", "content", "\ud800", "k" * 999))] = container[key]
    elif change == 1:
        container.insert(key, container[key])
    elif change == 2:
        container[key] = [container[key]]
    elif change == 3:
        container[key] = {"a": container[key]}
    elif change == 4:
        container[key] = DEEP
    elif change == 5 and isinstance(container[key], str):
        container[key] += choices.take(choices.number(6)).decode("utf-8", "replace")
    elif change == 5 and isinstance(container[key], int):
        container[key] += choices.number(5) - 2
    else:
        container[key] = deepcopy(choices.of(ODD))


def text(choices: Choices, value: Any) -> bytes:
    """The value in JSON, of which a few bytes may be damaged."""
    depth = choices.of((5, 100, 900, 990))
    nested = b"[" * depth + b"]" * depth
    written = bytearray(json.dumps(value).encode().replace(json.dumps(DEEP).encode(), nested))
    for _ in range(choices.number(4) if choices.chance(4) else 0):
        at = choices.number(len(written))
        written[at : at + choices.number(3)] = choices.of(
            (b"", b'"', b"}", b"[[[[", b"\xff", b"9" * 5000, b"\\u0000", b"NaN", choices.take(2))
        )
    if choices.chance(30):
        return choices.of((b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xef\xbb\xbf{}", b"null"))
    if choices.chance(20):
        return bytes(written).replace(b"{", b'{"a": 1, "a": 2, ', 1)
    return bytes(written[: choices.number(len(written))] if choices.chance(20) else written)
