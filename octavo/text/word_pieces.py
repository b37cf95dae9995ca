"""WordPiece vocabularies (BERT) from GGUF, which writes beginnings of words as `▁word` and what
continues one as it is; the library and tokenizer.json write `word` and `##ing`.
"""

from typing import TYPE_CHECKING

from octavo.errors import ModelFileError
from octavo.text.gguf_vocabulary import PREFIX, TokenType, Vocabulary
from octavo.text.spelling import SPACE_MARK

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

CONTINUES = "##"
# The ids of BERT's own vocabulary hold where the file does not name these tokens.
BERT_IDS = {"cls_token": 101, "sep_token": 102, "unk_token": 100}
WHOLE = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})


def word_pieces(vocabulary: Vocabulary) -> "Backend":
    """`tokenizer.ggml.model` bert: lower case and no accents unless the file says otherwise, the
    longest pieces from the left, a word that cannot be spelled becomes the unknown token.
    """
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    config = vocabulary.config
    whole = {int(kind) for kind in WHOLE}
    named = {config.get(f"{name}_token") for name in ("bos", "eos", "unk", "pad", "cls", "sep")}
    vocabulary.tokens = tokens = [
        token if kind in whole or token in named else _library_spelling(token)
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    ]
    for name, number in BERT_IDS.items():
        if number < len(tokens):
            vocabulary.default(name, tokens[number])
    unknown = config.get("unk_token")
    if unknown is None:
        raise ModelFileError(f"{PREFIX}unknown_token_id is missing")
    vocabulary.default("bos_token", config.get("cls_token"))
    vocabulary.default("eos_token", config.get("sep_token"))
    vocabulary.default("add_bos_token", True)
    vocabulary.default("add_eos_token", True)
    backend = Backend(
        models.WordPiece(
            vocab=vocabulary.numbers(), unk_token=unknown, continuing_subword_prefix=CONTINUES
        )
    )
    lowercase = vocabulary.flag("normalizer.lowercase", True)
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        lowercase=lowercase,
        strip_accents=vocabulary.flag("normalizer.strip_accents", lowercase),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(CONTINUES, cleanup=False)
    return backend


def _library_spelling(token: str) -> str:
    if token.startswith(SPACE_MARK):
        return token.removeprefix(SPACE_MARK)
    return CONTINUES + token
