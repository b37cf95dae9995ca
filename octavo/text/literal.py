"""Encodes text that spells control tokens without making any: a user's text, or a part of it."""

import json
import secrets
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.text.automaton import Automaton

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


class Control(NamedTuple):
    """A control token in a text: its place among the ids and the characters it takes, which may
    be more than its own: some tokens swallow the spaces beside them.
    """

    place: int
    number: int
    start: int
    end: int

    def carries(self, marks: frozenset[int], text: str, content: str) -> bool:
        """Whether a mark stands inside its `content` (or behind the only character)."""
        first = max(text.find(content, self.start, self.end), self.start)
        last = first + max(len(content), 2)
        return any(place in marks for place in range(first + 1, last))


class LiteralEncoder:
    """Encodes text whose control tokens are ordinary characters, except those without a mark.

    Needs instances of its own, as the library's switch is not one of a call. They are made when the
    first one is needed and share the model; only a model that has made a control token itself is
    copied without those, which takes seconds for a large vocabulary.
    """

    def __init__(self, backend: "Backend", special_tokens: Mapping[str, int]) -> None:
        self._backend = backend
        self._special_tokens = special_tokens
        self._automaton: Automaton | None = None
        unknown = getattr(backend.model, "unk_token", None)  # what no model can do without
        self._control_ids = frozenset(
            i for text, i in special_tokens.items() if len(text) > 1 and text != unknown
        )
        self._instances: dict[tuple[bool, bool, bool], Backend] = {}
        self._lock = threading.Lock()

    def encode(self, text: str, marks: frozenset[int], after: Any) -> list[int]:
        """`after`: the added token before the text, None at the beginning of a prompt.

        A control token that the library's longest match had hidden may be the template's own: it
        begins in the text of the user's, and stands here without a mark.
        """
        with self._lock:
            if self._automaton is None:
                self._automaton = Automaton(self._special_tokens)
        ids: list[int] = []
        position, begins = 0, after is None
        occurrences = self._automaton.occurrences(text)
        for start, end in sorted(occurrences, key=lambda span: (span[0], -span[1])):
            token = text[start:end]
            control = Control(0, self._special_tokens[token], start, end)
            if start < position or control.carries(marks, text, token):
                continue
            ids += self._plain(text[position:start], begins, after)
            ids.append(control.number)
            position, begins = end, False
        return ids + self._plain(text[position:], begins, after)

    def _plain(self, text: str, begins: bool, after: Any) -> list[int]:
        if not text:
            return []
        prepends = after is None or not after.normalized
        ids: list[int] = []
        for hides in (False, True):
            instance = self._instance(begins, prepends, hides)
            ids = instance.encode_batch_fast([text], add_special_tokens=False)[0].ids
            if self._control_ids.isdisjoint(ids):
                break
        return ids

    def _instance(self, begins: bool, prepends: bool, hides: bool) -> "Backend":
        """hides: with a model that has no control tokens.

        begins: at the beginning of a prompt, where `Metaspace` with the scheme "first" adds its
        space. prepends: behind a control token that is matched before normalising, so that the
        normaliser sees a text that begins here.
        """
        with self._lock:
            instance = self._instances.get((begins, prepends, hides))
            if instance is None:
                make = _copied if hides else _sharing
                instance = make(self._backend, self._special_tokens, begins, prepends)
                instance.encode_special_tokens = True
                self._instances[begins, prepends, hides] = instance
            return instance


def _sharing(
    backend: "Backend", special_tokens: Mapping[str, int], begins: bool, prepends: bool
) -> "Backend":
    """An instance with the same model and added tokens."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    parts = json.loads(Backend(models.BPE()).to_str())
    for name in ("normalizer", "pre_tokenizer"):
        step = getattr(backend, name)
        parts[name] = None if step is None else json.loads(step.__getstate__())
    _set_beginning(parts, begins, prepends)
    steps = Backend.from_str(json.dumps(parts))
    instance = Backend(backend.model)
    if steps.normalizer is not None:
        instance.normalizer = steps.normalizer
    if steps.pre_tokenizer is not None:
        instance.pre_tokenizer = steps.pre_tokenizer
    added = backend.get_added_tokens_decoder()
    instance.add_tokens([added[number] for number in sorted(added)])
    if instance.get_added_tokens_decoder().keys() != added.keys():  # gaps between their ids
        return _copied(backend, special_tokens, begins, prepends)
    return instance


def _copied(
    backend: "Backend", special_tokens: Mapping[str, int], begins: bool, prepends: bool
) -> "Backend":
    """An instance whose model has no control tokens."""
    from tokenizers import Tokenizer as Backend

    parts = json.loads(backend.to_str())
    _hide(parts, special_tokens)
    _set_beginning(parts, begins, prepends)
    return Backend.from_str(json.dumps(parts))


def _set_beginning(parts: dict[str, Any], begins: bool, prepends: bool) -> None:
    if not begins:
        _never_first(parts.get("pre_tokenizer"))
    if not prepends:
        parts["normalizer"] = _without_prepend(parts.get("normalizer"))


def _hide(parts: dict[str, Any], special_tokens: Mapping[str, int]) -> None:
    """Control tokens that the model itself has as pieces get spellings that nobody can guess: some
    models take any piece that they find in the text. One character stays: it is text as well.
    """
    model = parts["model"]
    vocabulary = model["vocab"]
    pieces = set(vocabulary if isinstance(vocabulary, dict) else dict(vocabulary))
    hidden = {token for token in special_tokens.keys() & pieces if len(token) > 1}
    hidden.discard(model.get("unk_token"))
    if not hidden:
        return
    suffix = secrets.token_hex(16)
    if isinstance(vocabulary, dict):
        model["vocab"] = {t + suffix if t in hidden else t: i for t, i in vocabulary.items()}
    else:
        model["vocab"] = [[t + suffix if t in hidden else t, score] for t, score in vocabulary]
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [
            (left, right)
            for left, right in model["merges"]
            if hidden.isdisjoint((left, right, left + right.removeprefix(prefix)))
        ]
    parts["added_tokens"] = [t for t in parts["added_tokens"] if t["content"] not in hidden]


def _never_first(part: Any) -> None:
    if not isinstance(part, dict):
        return
    if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
        part["prepend_scheme"] = "never"
    for inner in part.get("pretokenizers", ()):
        _never_first(inner)


def _without_prepend(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") == "Prepend":
        return None
    if part.get("type") == "Sequence":
        kept = [k for k in map(_without_prepend, part.get("normalizers", ())) if k is not None]
        return {**part, "normalizers": kept}
    return part
