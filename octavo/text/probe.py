"""Tries a tokenizer out before it serves anybody: faults of its files that the library only meets
when a text does.
"""

import base64
import binascii
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelFileError
from octavo.text.charsmap import check_charsmap
from octavo.text.expressions import repeated
from octavo.text.library import library_faults
from octavo.text.pre_tokenizers import PRE_TOKENIZERS
from octavo.weights.mapped import parse_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# A prefix, or a key that is written with escapes, which could be the prefix's.
PREFIXED = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')
ESCAPED_LETTER = re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])")
EXPRESSION = re.compile(r'"Regex":\s*("(?:[^"\\]|\\.)*")')
MAX_EXPRESSIONS = 8192  # characters of all of them
MAX_RUNS = 400  # of what is repeated
RUNS_AT_ONCE = 8
FIRST_RUN, LAST_RUN = 16, 2048  # characters
MAX_RUN_S = 0.25  # of CPU for the longest at once; real vocabularies take 20 ms
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
        if strange_expressions:
            _try_expressions(backend, "".join(states))


def _try_expressions(backend: "Backend", states: str) -> None:
    """Raises ModelFileError where an expression explodes on a repetition of what it is made of."""
    found = {json.loads(text) for text in EXPRESSION.findall(states)}
    own = sorted(found.difference(*(cut.steps for cut in PRE_TOKENIZERS.values())))
    if not own:
        return
    if sum(map(len, own)) > MAX_EXPRESSIONS:
        raise ModelFileError(
            f"the vocabulary has regular expressions of more than {MAX_EXPRESSIONS} characters"
        )
    runs = repeated(own)
    if len(runs) > MAX_RUNS:
        raise ModelFileError(
            "the vocabulary has regular expressions of too many different characters"
        )
    for first in range(0, len(runs), RUNS_AT_ONCE):
        _check_growth(backend, runs[first : first + RUNS_AT_ONCE], "".join(own))


def _check_growth(backend: "Backend", runs: Sequence[str], own: str) -> None:
    """Raises ModelFileError where repetitions take a time out of all proportion: an expression that
    explodes. Each is twice as long as the one before, so that the first one that takes long does
    not take very long. Behind them stands what the expressions are made of: the library does not
    even begin where a letter that they need is nowhere.
    """
    length = FIRST_RUN
    while length <= LAST_RUN:
        texts = [letters * (length // len(letters)) for letters in runs]
        text = "\0".join((*texts, own))
        began = time.process_time()
        backend.encode_batch_fast([text], add_special_tokens=False)
        limit_s = MAX_RUN_S * max(length / LAST_RUN, 0.2)
        if time.process_time() - began > limit_s:
            raise ModelFileError(
                f"the vocabulary takes more than {limit_s:.2f} s for {len(text)} characters: its "
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
