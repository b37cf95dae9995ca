"""Small tokenizers of each family, made in place."""

from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo.text.spelling import byte_letters
from octavo.text.tokenizer import HFTokenizer

SPECIAL = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")
CONFIG = {"bos_token": "<s>", "eos_token": "</s>"}


def _with_added(backend: Tokenizer, **flags: Any) -> HFTokenizer:
    special = [AddedToken(t, special=True, **({"normalized": False} | flags)) for t in SPECIAL]
    backend.add_special_tokens(special)
    backend.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return HFTokenizer(backend, CONFIG)


def _byte_level(**flags: Any) -> HFTokenizer:
    vocabulary = {letter: i for i, letter in enumerate(byte_letters())}
    merges = [("h", "i"), ("i", "m"), ("Ġ", "h"), ("Ġh", "i"), ("<", "|"), ("|", ">")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    return _with_added(backend, **flags)


def _pieces() -> Tokenizer:
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    for letter in "▁abcdehimnrst<>|_/":
        vocabulary[letter] = len(vocabulary)
    merges = [("▁", "h"), ("▁h", "i"), ("h", "i"), ("▁", "▁"), ("i", "m"), ("|", ">")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    return Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )


def _prepending(**flags: Any) -> HFTokenizer:
    backend = _pieces()
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _with_added(backend, **flags)


def _metaspace(scheme: str) -> HFTokenizer:
    backend = _pieces()
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", scheme)])
    return _with_added(backend)


def _word_piece() -> HFTokenizer:
    vocabulary = {"[UNK]": 0}
    for letter in "abcdefghijklmnopqrstuvwxyz<>|_/":
        vocabulary[letter] = len(vocabulary)
        vocabulary["##" + letter] = len(vocabulary)
    backend = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece("##", cleanup=False)
    return _with_added(backend)


MAKERS: dict[str, Callable[[], HFTokenizer]] = {
    "byte level": _byte_level,
    "byte level, stripping": lambda: _byte_level(lstrip=True, rstrip=True),
    "prepending": _prepending,
    "prepending, normalized": lambda: _prepending(normalized=True),
    "metaspace first": lambda: _metaspace("first"),
    "metaspace always": lambda: _metaspace("always"),
    "metaspace never": lambda: _metaspace("never"),
    "word piece": _word_piece,
}


@pytest.fixture(scope="session")
def tokenizers_by_kind() -> dict[str, HFTokenizer]:
    return {kind: make() for kind, make in MAKERS.items()}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def tokenizer(kind: str, tokenizers_by_kind: dict[str, HFTokenizer]) -> HFTokenizer:
    return tokenizers_by_kind[kind]
