"""Tries a tokenizer out before it serves anybody: faults of its files that the library only meets
when a text does.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelFileError
from octavo.text.charsmap import check_charsmap

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

PREFIXED = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')
# Letters, digits, spaces, line ends, marks, a character outside the first plane, one of no script.
TEXT = "Ab 12\t\n\r\n  é e\u0301 中文 ½ ' \u200d😀\U000e0041\U0010ffff<>[]{}\\ \u0000 "


def probe(backend: "Backend") -> None:
    """Raises ModelFileError where the library cannot encode a text, or could fall over one."""
    normalizer = backend.normalizer
    for part in _parts(None if normalizer is None else json.loads(normalizer.__getstate__())):
        if part.get("type") == "Precompiled":
            try:
                data = base64.b64decode(part.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise ModelFileError("the precompiled charsmap is no base64") from None
            check_charsmap(data)
    try:
        for text in (TEXT, ""):
            backend.encode_batch_fast([text], add_special_tokens=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library's panics are no Exceptions
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"the vocabulary cannot encode every text: {reason}") from None


def check_merges(data: bytes) -> None:
    """Refuses a tokenizer.json whose merges the library would cut outside of their second part,
    which ends the process. Files whose merges have no prefix are not parsed for it.
    """
    if not PREFIXED.search(data):
        return
    try:
        model = json.loads(data)["model"]
        prefix, merges = model["continuing_subword_prefix"], model.get("merges") or ()
        rights = [m.partition(" ")[2] if isinstance(m, str) else m[1] for m in merges]
        usable = all(right.startswith(prefix) for right in rights)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return  # of another form: the library says so
    if not usable:
        raise ModelFileError("tokenizer.json: a merge lacks the 'continuing_subword_prefix'")


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, dict):
        yield part
        for inner in part.get("normalizers") or ():
            yield from _parts(inner)
