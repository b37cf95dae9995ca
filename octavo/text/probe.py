"""Tries a tokenizer out before it serves anybody: faults of its files that the library only meets
when a text does.
"""

import base64
import binascii
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelFileError
from octavo.text.charsmap import check_charsmap
from octavo.text.library import library_faults
from octavo.weights.mapped import parse_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# A prefix, or a key that is written with escapes, which could be the prefix's.
PREFIXED = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')
ESCAPED_LETTER = re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])")
# What expressions for text repeat, alone and in turn.
RUNS = ("a", "aA", " ", "\n", " \n", "1", "!", "a1", "a ", "é", "中", "'", "e\u0301")
EXPRESSION = re.compile(r'"Regex":\s*"((?:[^"\\]|\\.)*)"')
MAX_EXPRESSIONS = 2000  # characters of them that are tried
FIRST_RUN, LAST_RUN = 16, 2048  # characters
MAX_RUN_S = 0.25  # of CPU; real vocabularies take 2 ms for the longest
# Letters, digits, spaces, line ends, marks, a character outside the first plane, one of no script.
TEXT = "Ab 12\t\n\r\n  é e\u0301 中文 ½ ' \u200d😀\U000e0041\U0010ffff<>[]{}\\ \u0000 "


def probe(backend: "Backend", strange_expressions: bool = True) -> None:
    """Raises ModelFileError where the library cannot encode a text, or could fall over one.

    strange_expressions: whether regular expressions come from the file and not from us.
    """
    steps = (backend.normalizer, backend.pre_tokenizer)
    states = ["null" if step is None else str(step.__getstate__(), "utf-8") for step in steps]
    for part in _parts(json.loads(states[0])):
        if part.get("type") == "Precompiled":
            try:
                data = base64.b64decode(part.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise ModelFileError("the precompiled charsmap is no base64") from None
            check_charsmap(data)
    with library_faults(ModelFileError, "the vocabulary cannot encode every text"):
        for text in (TEXT, ""):
            backend.encode_batch_fast([text], add_special_tokens=True)
        own = sorted(set(EXPRESSION.findall("".join(states)))) if strange_expressions else []
        for letters in RUNS if own else ():
            _check_growth(backend, letters, "".join(own)[:MAX_EXPRESSIONS])


def _check_growth(backend: "Backend", letters: str, own: str) -> None:
    """Raises ModelFileError where a run of the letters takes a time out of all proportion: an
    expression that explodes. Each run is twice as long as the one before, so that the first one
    that takes long does not take very long. Behind the run stands what the expressions are made of:
    the library does not even begin where a letter that they need is nowhere.
    """
    length = FIRST_RUN
    while length <= LAST_RUN:
        began = time.process_time()
        text = letters * (length // len(letters)) + "\0" + own
        backend.encode_batch_fast([text], add_special_tokens=False)
        if time.process_time() - began > MAX_RUN_S:
            raise ModelFileError(
                f"the vocabulary takes more than {MAX_RUN_S:g} s for {length} characters: its "
                "regular expressions are not usable for a server"
            )
        length *= 2


def check_merges(data: bytes) -> None:
    """Refuses a tokenizer.json whose merges the library would cut outside of their second part,
    which ends the process. Files whose merges have no prefix are not parsed for it.
    """
    if not PREFIXED.search(data) and not ESCAPED_LETTER.search(data):
        return
    parsed = parse_json("tokenizer.json", data)
    try:
        model = parsed["model"]
        prefix, merges = model.get("continuing_subword_prefix") or "", model.get("merges") or ()
        rights = [m.partition(" ")[2] if isinstance(m, str) else m[1] for m in merges]
        usable = all(right.startswith(prefix) for right in rights)
    except (LookupError, TypeError, AttributeError):
        return  # of another form: the library says so
    if not usable:
        raise ModelFileError("tokenizer.json: a merge lacks the 'continuing_subword_prefix'")


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, dict):
        yield part
        for inner in part.get("normalizers") or ():
            yield from _parts(inner)
