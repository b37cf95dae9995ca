"""Break marks: a character put into every control token that a user's string spells, so that after
rendering only the template's own control tokens match.

A mark stands after the first character of each occurrence. Strings that could, trimmed or not, be
the start, the end or the middle of a control token whose rest stands beside them in the rendered
text get one too. The tokenizer takes all marks out again, so one too many changes nothing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from octavo.errors import InvalidRequest
from octavo.text.automaton import Automaton

# Code points that are no characters, for a program's own use; one that the input does not have.
CANDIDATES = (
    *map(chr, range(0xFDD0, 0xFDF0)),
    *(chr((plane << 16) + low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF)),
)


# What templates compare and look up with fixed words, and so must find as it is. All other words
# are marked like any text: a template may put a role between `<|` and `|>`.
ROLES = frozenset(
    ("system", "developer", "user", "assistant", "tool", "function", "ipython", "model")
)
TYPES = frozenset(
    (
        *("text", "image", "image_url", "video", "video_url", "audio", "input_audio", "audio_url"),
        *("function", "object", "array", "string", "number", "integer", "boolean", "null"),
    )
)
KEYS = frozenset(
    (
        *("role", "content", "name", "tool_calls", "tool_call_id", "id", "prefix", "thinking"),
        *("reasoning", "reasoning_content", "function", "arguments", "description", "parameters"),
        *("properties", "required", "items", "enum", "default", "anyOf", "return", "title"),
        *("type", *TYPES, "url", "data", "format", "source", "documents", "tools"),
    )
)


def strings_in(value: Any) -> Iterator[str]:
    """All strings of a JSON value, keys of objects included."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)


def json_escape(mark: str) -> str:
    """How JSON in ASCII writes the mark."""
    return json.dumps(mark)[1:-1]


def free_characters(values: Iterable[Any], count: int) -> list[str]:
    """`count` marks that occur nowhere in the strings of `values`, raw or escaped as in JSON.

    Raises InvalidRequest when the input uses all of them.
    """
    strings = list(strings_in(list(values)))
    found = []
    for mark in CANDIDATES:
        escape = json_escape(mark)
        if not any(mark in s or ("\\" in s and escape in s.lower()) for s in strings):
            found.append(mark)
            if len(found) == count:
                return found
    raise InvalidRequest(
        "the messages use every Unicode noncharacter (U+FDD0 and so on); remove some of them",
        param="messages",
    )


_WORDS = {"role": ROLES, "type": TYPES}


class Marker:
    """Marks JSON values for one set of control tokens."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        tokens = sorted({token for token in control_tokens if token})
        self._automaton = Automaton(tokens)
        self._spelled = "\0".join(tokens)
        self._longest = max(map(len, tokens), default=0)
        self._ends = {token[i:] for token in tokens for i in range(1, len(token) - 1)}

    def mark(self, value: Any, mark: str, name: str = "") -> Any:
        """A copy of `value`, the value of the key `name`, with marks in all its strings but the
        fixed words above."""
        if isinstance(value, str):
            if value in _WORDS.get(name, ()):
                return value
            return self._mark_text(value, mark)
        if isinstance(value, Mapping):
            return {
                self._mark_key(key, mark): self.mark(item, mark, key) for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.mark(item, mark, name) for item in value]
        return value

    def _mark_key(self, key: Any, mark: str) -> Any:
        if not isinstance(key, str) or key in KEYS:
            return key
        return self._mark_text(key, mark)

    def _mark_text(self, text: str, mark: str) -> str:
        places = {start + 1 for start, _ in self._automaton.occurrences(text)}
        # Templates may trim it before something stands beside it.
        bare = text.strip()
        start = len(text) - len(text.lstrip())
        stretches = {(0, text), (0, text.rstrip()), (start, text.lstrip()), (start, bare)}
        for offset, stretch in stretches:
            state = self._automaton.end(stretch)
            end = offset + len(stretch)
            places.update(end - length + 1 for length in self._automaton.suffixes(state))
            if self._continues_a_token(stretch):
                places.add(offset)
        if not places:
            return text
        cuts = [0, *sorted(places), len(text)]
        pieces = [text[a:b] for a, b in pairwise(cuts)]
        return mark.join(pieces)

    def _continues_a_token(self, text: str) -> bool:
        """Whether a control token may have begun before `text`: two characters of it at least."""
        if 2 <= len(text) < self._longest and text in self._spelled:
            return True
        return any(text[:length] in self._ends for length in range(2, self._longest))
