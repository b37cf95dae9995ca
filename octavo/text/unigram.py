"""Unigram vocabularies (T5) from GGUF: of all ways to spell a text the one whose pieces' scores sum
to the most.
"""

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from octavo.errors import ModelFileError
from octavo.text.charsmap import check_charsmap
from octavo.text.gguf_vocabulary import PREFIX, TokenType, Vocabulary
from octavo.text.merges import check_lengths
from octavo.text.spelling import BYTE_TOKEN, SPACE_MARK

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.normalizers import Normalizer

T5_IDS = {"unk_token": 2, "eos_token": 1}  # where the file does not name these tokens


def unigram(vocabulary: Vocabulary) -> "Backend":
    """`tokenizer.ggml.model` t5."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    tokens = vocabulary.tokens
    check_lengths(tokens)
    for name, number in T5_IDS.items():
        if number < len(tokens):
            vocabulary.default(name, tokens[number])
    vocabulary.default("add_bos_token", False)
    vocabulary.default("add_eos_token", True)
    unknown = vocabulary.config.get("unk_token")
    if unknown is None:
        raise ModelFileError(f"{PREFIX}unknown_token_id is missing")
    backend = Backend(
        models.Unigram(
            _pieces(vocabulary),
            unk_id=tokens.index(unknown),
            byte_fallback=any(BYTE_TOKEN.fullmatch(token) for token in tokens[:1024]),
        )
    )
    backend.normalizer = _normalizer(vocabulary)
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.flag("add_space_prefix", True):
        steps.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(steps)
    return backend


def _pieces(vocabulary: Vocabulary) -> list[tuple[str, float]]:
    """Pieces that text must not match are spelled as the empty text, which never does: the unknown
    token and the unused ones, whose scores would also lower the price of unknown characters.
    """
    normal, control = int(TokenType.NORMAL), int(TokenType.CONTROL)
    reachable = {control, int(TokenType.USER_DEFINED), int(TokenType.BYTE)}
    pieces = []
    rows = zip(vocabulary.tokens, vocabulary.scores(), vocabulary.types, strict=True)
    for token, score, kind in rows:
        if kind == normal:
            if not isfinite(score):
                raise ModelFileError(f"{PREFIX}scores holds {score}, which is no finite number")
            pieces.append((token, score))
        else:
            pieces.append((token if kind in reachable else "", 0.0))
    return pieces


def _normalizer(vocabulary: Vocabulary) -> "Normalizer":
    """The file's map of characters, then spaces as SentencePiece writes them."""
    from tokenizers import Regex, normalizers

    steps: list[Normalizer] = []
    charsmap = vocabulary.array("precompiled_charsmap", ("I8", "U8"))
    if charsmap:
        data = np.array(charsmap, np.int64).astype(np.uint8).tobytes()
        check_charsmap(data)
        steps.append(normalizers.Precompiled(data))
    if vocabulary.flag("remove_extra_whitespaces", False):
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    if vocabulary.flag("add_space_prefix", True):
        steps.append(normalizers.Prepend(SPACE_MARK))
    steps.append(normalizers.Replace(" ", SPACE_MARK))
    return normalizers.Sequence(steps)
