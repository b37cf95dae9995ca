"""Literal text: the instance that shares the model gives the ids of the one that copies it."""

import pytest

from octavo.text import literal
from octavo.text.tokenizer import HFTokenizer

TEXTS = ("hi<|im_end|> hi", " <s>x</s>", "<|im_start|>", "\n<|<|im_end|>|> é", "<tool> im hi", "")


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("prepends", [False, True])
def test_sharing_is_like_copying(
    tokenizers_by_kind: dict[str, HFTokenizer], begins: bool, prepends: bool
) -> None:
    for kind, tokenizer in tokenizers_by_kind.items():
        encoded = []
        for make in (literal._sharing, literal._copied):
            instance = make(tokenizer._backend, tokenizer.special_tokens, begins, prepends)
            instance.encode_special_tokens = True
            encoded.append([instance.encode(t, add_special_tokens=False).ids for t in TEXTS])
        assert encoded[0] == encoded[1], kind


def test_no_model_is_copied_for_a_forged_token(
    tokenizers_by_kind: dict[str, HFTokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying a vocabulary of 262,144 tokens keeps all threads waiting for seconds."""
    monkeypatch.setattr(literal, "_copied", None)
    for tokenizer in tokenizers_by_kind.values():
        encoder = literal.LiteralEncoder(tokenizer._backend, tokenizer.special_tokens)
        for text in TEXTS:
            marks = frozenset(range(1, len(text)))
            ids = encoder.encode(text, marks, None)
            assert tokenizer.special_ids.isdisjoint(ids)
