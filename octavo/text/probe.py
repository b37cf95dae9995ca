"""Tries a tokenizer out before it serves anybody: faults of its files that the library only meets
when a text does.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelFileError
from octavo.text.charsmap import check_charsmap

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

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


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, dict):
        yield part
        for inner in part.get("normalizers") or ():
            yield from _parts(inner)
