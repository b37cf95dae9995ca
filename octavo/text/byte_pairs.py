"""Vocabularies of merged pairs, from GGUF: of bytes (GPT-2), of characters (Gemma 4), and
SentencePiece's, whose merges follow from scores.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from octavo.errors import ModelFileError
from octavo.text.gguf_vocabulary import PREFIX, TokenType, Vocabulary
from octavo.text.merges import check_lengths, merges_in_order
from octavo.text.pre_tokenizers import PRE_TOKENIZERS
from octavo.text.spelling import BYTE_TOKEN, SPACE_MARK
from octavo.weights.mapped import shown_value

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

# Names in `tokenizer.ggml.pre` of vocabularies that are not of bytes -> whether a BOS is added when
# the file does not say.
CHARACTER_PRE: Final[Mapping[str, bool]] = {
    "gemma4": True,
    "granite-embed-multi-311m": True,
    "sarvam-moe": False,
}
MERGEABLE = frozenset({TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED})


def byte_level(vocabulary: Vocabulary) -> "Backend":
    """`tokenizer.ggml.model` gpt2."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    name = vocabulary.metadata.get(PREFIX + "pre", "default")
    if isinstance(name, str) and name in CHARACTER_PRE:
        return characters(vocabulary, add_bos=CHARACTER_PRE[name])
    cut = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if cut is None:
        names = ", ".join([*PRE_TOKENIZERS, *CHARACTER_PRE])
        raise ModelFileError(
            f"{PREFIX}pre is {shown_value(name)}, which is not known; known: {names}"
        )
    known = vocabulary.numbers()
    backend = Backend(
        models.BPE(
            vocab=known,
            merges=_merges(vocabulary, known),
            ignore_merges=cut.ignore_merges,
        )
    )
    backend.pre_tokenizer = cut.build()
    backend.decoder = decoders.ByteLevel()
    vocabulary.default("add_bos_token", cut.add_bos)
    return backend


def characters(vocabulary: Vocabulary, add_bos: bool = True) -> "Backend":
    """`tokenizer.ggml.model` gemma4: spaces are written as a mark, no token crosses a line's end,
    what has no token becomes bytes.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    known = vocabulary.numbers()
    backend = Backend(_with_bytes(vocabulary, known, _merges(vocabulary, known)))
    backend.normalizer = normalizers.Replace(" ", SPACE_MARK)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), behavior="isolated")
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    vocabulary.default("add_bos_token", add_bos)
    return backend


def sentencepiece(vocabulary: Vocabulary) -> "Backend":
    """`tokenizer.ggml.model` llama: pieces are merged in the order of their scores; what has no
    piece becomes bytes.
    """
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, normalizers

    scores: Sequence[float] = vocabulary.scores()
    if vocabulary.architecture.startswith("gemma"):
        # Gemma's scores do not follow its merges, the order of its tokens does; and runs of spaces
        # are written as such in files.
        scores = range(0, -len(scores), -1)
        vocabulary.tokens = [
            token.replace(" ", SPACE_MARK) if token.isspace() else token
            for token in vocabulary.tokens
        ]
    known = vocabulary.numbers()
    backend = Backend(_with_bytes(vocabulary, known, _scored_merges(vocabulary, known, scores)))
    spaces = normalizers.Replace(" ", SPACE_MARK)
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.flag("add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = spaces
    backend.decoder = decoders.Sequence(steps)
    vocabulary.default("add_bos_token", True)
    return backend


def _merges(vocabulary: Vocabulary, known: Mapping[str, int]) -> list[tuple[str, str]]:
    """As the file lists them: the two parts with a space between. The library panics over a merge
    that is longer than all tokens.
    """
    merges = []
    for merge in vocabulary.strings("merges"):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise ModelFileError(
                f"{PREFIX}merges holds {shown_value(merge)}, which is not two parts"
            )
        if left not in known or right not in known or left + right not in known:
            raise ModelFileError(f"{PREFIX}merges holds {shown_value(merge)}, not all of it tokens")
        merges.append((left, right))
    return merges


def _scored_merges(
    vocabulary: Vocabulary, known: Mapping[str, int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """The piece with the best score first; of two with the same the one with the lower id."""
    tokens, types = vocabulary.tokens, vocabulary.types
    check_lengths(tokens)
    worth = np.array(scores)
    if np.isnan(worth).any():
        raise ModelFileError(f"{PREFIX}scores holds what is no number")
    mergeable = np.isin(np.array(types), [int(kind) for kind in MERGEABLE])
    if len(known) < len(tokens):  # of tokens that are spelled the same only the first counts
        first = np.zeros(len(tokens), bool)
        first[list(known.values())] = True
        mergeable &= first
    numbers = np.flatnonzero(mergeable)
    order = np.argsort(-worth[numbers], kind="stable")
    return merges_in_order([tokens[number] for number in numbers[order].tolist()])


def _with_bytes(
    vocabulary: Vocabulary, known: dict[str, int], merges: list[tuple[str, str]]
) -> "BPE":
    from tokenizers import models

    return models.BPE(
        vocab=known,
        merges=merges,
        unk_token=vocabulary.config.get("unk_token"),
        fuse_unk=True,
        byte_fallback=any(BYTE_TOKEN.fullmatch(token) for token in vocabulary.tokens[:1024]),
    )
