"""Builds a tokenizer from the metadata of a GGUF file (`tokenizer.ggml.*`)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo.errors import ModelFileError, NotBuilt
from octavo.text.byte_pairs import byte_level, characters, sentencepiece
from octavo.text.gguf_vocabulary import PREFIX, Vocabulary, read_vocabulary
from octavo.text.gguf_vocabulary import TokenType as TokenType
from octavo.text.library import library_faults
from octavo.text.probe import probe
from octavo.text.tokenizer import HFTokenizer, set_ends
from octavo.text.unigram import unigram
from octavo.text.word_pieces import word_pieces
from octavo.weights.mapped import shown_value

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# By `tokenizer.ggml.model`.
BUILDERS: Final[Mapping[str, "Callable[[Vocabulary], Backend]"]] = {
    "gpt2": byte_level,
    "llama": sentencepiece,
    "gemma4": characters,
    "t5": unigram,
    "bert": word_pieces,
}
KNOWN_KINDS = ("rwkv", "plamo2", "hybriddna", "whitespace")  # in the format, not built here


def tokenizer_from_gguf(metadata: Mapping[str, Any], file_name: str = "") -> HFTokenizer:
    """The tokenizer that the metadata describes.

    Raises ModelFileError naming the file, if its name is given, and the key that is missing, of
    another kind or too short; NotBuilt for a known kind of vocabulary that is not built here.
    """
    try:
        return _build(metadata)
    except (ModelFileError, NotBuilt) as error:
        if not file_name:
            raise
        raise type(error)(f"{file_name}: {error}") from None


def _build(metadata: Mapping[str, Any]) -> HFTokenizer:
    kind = metadata.get(PREFIX + "model")
    if kind in KNOWN_KINDS:
        raise NotBuilt(
            f"{PREFIX}model is {kind!r}, which is not built yet; built: {', '.join(BUILDERS)}"
        )
    if not isinstance(kind, str) or kind not in BUILDERS:
        found = "missing" if kind is None else shown_value(kind)
        raise ModelFileError(f"{PREFIX}model is {found}; known: {', '.join(BUILDERS)}")
    vocabulary = read_vocabulary(metadata)
    fault = f"{PREFIX}tokens, merges and scores make no vocabulary"
    with library_faults(ModelFileError, fault):
        backend = BUILDERS[kind](vocabulary)
        _add_tokens(backend, vocabulary)
        set_ends(backend, vocabulary.config)
        probe(backend, strange_expressions=False)
        return HFTokenizer(backend, vocabulary.config, vocabulary.tokens)


def _add_tokens(backend: "Backend", vocabulary: Vocabulary) -> None:
    """Control tokens are special; user-defined ones are only never cut."""
    from tokenizers import AddedToken

    types = np.array(vocabulary.types)

    def added(wanted: TokenType, special: bool) -> list[AddedToken]:
        return [
            AddedToken(token, special=special, normalized=False)
            for number in np.flatnonzero(types == wanted).tolist()
            if (token := vocabulary.tokens[number])
        ]

    backend.add_special_tokens(added(TokenType.CONTROL, special=True))
    backend.add_tokens(added(TokenType.USER_DEFINED, special=False))
