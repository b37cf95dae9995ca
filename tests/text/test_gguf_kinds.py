"""Unigram, WordPiece and character vocabularies of GGUF in small, and that text makes no control
token of theirs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from octavo.errors import ModelFileError
from octavo.testing.charsmap import make_charsmap
from octavo.text.gguf_tokenizer import TokenType, tokenizer_from_gguf
from octavo.text.marks import CANDIDATES
from octavo.text.tokenizer import HFTokenizer, RenderedPrompt
from octavo.weights.gguf_metadata import GGUFArray, ValueKind

KEY = "tokenizer.ggml."
MARK = CANDIDATES[0]
N, U, C, B = TokenType.NORMAL, TokenType.UNKNOWN, TokenType.CONTROL, TokenType.BYTE


def metadata(
    model: str, rows: Sequence[tuple[str, TokenType, float]], **more: Any
) -> dict[str, Any]:
    tokens, types, scores = zip(*rows, strict=True)
    found = {
        "general.architecture": model,
        KEY + "model": model,
        KEY + "tokens": GGUFArray(ValueKind.STRING, tokens),
        KEY + "token_type": GGUFArray(ValueKind.I32, map(int, types)),
        KEY + "scores": GGUFArray(ValueKind.F32, scores),
    } | {KEY + key: value for key, value in more.items()}
    return {key: value for key, value in found.items() if value is not None}


T5_ROWS = (
    *(("<pad>", C, 0.0), ("</s>", C, 0.0), ("<unk>", U, 0.0)),
    *(("▁", N, -2.0), ("a", N, -3.0), ("b", N, -3.0), ("▁ab", N, -4.0), ("ab", N, -5.5)),
    *(("s", N, -9.0), ("<", N, -9.0), ("/", N, -9.0), (">", N, -9.0)),
    *(("<x>", TokenType.USER_DEFINED, 0.0), ("aa", TokenType.UNUSED, -1.0)),
)
BERT_ROWS = (
    *(("[PAD]", C, 0.0), ("[UNK]", C, 0.0), ("[CLS]", C, 0.0), ("[SEP]", C, 0.0)),
    *(("▁he", N, 0.0), ("llo", N, 0.0), ("▁!", N, 0.0), ("▁中", N, 0.0), ("▁É", N, 0.0)),
    *(("▁[", N, 0.0), ("▁]", N, 0.0), ("▁cls", N, 0.0)),
)
BERT_MORE = {"unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3}
GEMMA_ROWS = (
    *(("<pad>", C, 0.0), ("<bos>", C, 0.0), ("\n", N, 0.0), ("\n\n", N, 0.0), ("▁", N, 0.0)),
    *(("h", N, 0.0), ("i", N, 0.0), ("hi", N, 0.0), ("▁hi", N, 0.0), ("▁▁", N, 0.0)),
    *((f"<0x{byte:02X}>", B, 0.0) for byte in range(256)),
)
GEMMA_MERGES = GGUFArray(ValueKind.STRING, ["\n \n", "h i", "▁ hi", "▁ ▁"])
GEMMA_MORE: Mapping[str, Any] = {"merges": GEMMA_MERGES, "bos_token_id": 1, "scores": None}


def spelled(tokenizer: HFTokenizer, text: str, ends: bool = False) -> list[str]:
    return [tokenizer.token_str(i) for i in tokenizer.encode(text, add_special_tokens=ends)]


# ------------------------------------------------------------------------------------------ unigram


def test_unigram() -> None:
    tokenizer = tokenizer_from_gguf(metadata("t5", T5_ROWS))
    assert spelled(tokenizer, "ab", ends=True) == ["▁ab", "</s>"]
    assert spelled(tokenizer, "a ab") == ["▁", "a", "▁ab"]
    assert spelled(tokenizer, "aab") == ["▁", "a", "ab"], "a + ab is better than a + a + b"
    assert spelled(tokenizer, "a中文a") == ["▁", "a", "<unk>", "a"], "one for a run"
    assert spelled(tokenizer, "<x>") == ["<x>"]
    assert spelled(tokenizer, "aa") == ["▁", "a", "a"], "unused"
    assert tokenizer.decode(tokenizer.encode("a ab", add_special_tokens=False)) == "a ab"
    assert tokenizer.special_tokens == {"<pad>": 0, "</s>": 1}
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (1, None)
    assert tokenizer.vocab_size == len(T5_ROWS)


def test_unigram_spaces_and_characters() -> None:
    charsmap = make_charsmap({"A": "a", "\n": " "})
    signed = GGUFArray(ValueKind.I8, [b - 256 if b > 127 else b for b in charsmap])
    more = {"precompiled_charsmap": signed, "remove_extra_whitespaces": True}
    tokenizer = tokenizer_from_gguf(metadata("t5", T5_ROWS, **more))
    assert spelled(tokenizer, "  Ab \n  ab ") == ["▁ab", "▁ab"]
    plain = tokenizer_from_gguf(metadata("t5", T5_ROWS, add_space_prefix=False))
    assert spelled(plain, "ab  ab") == ["ab", "▁", "▁ab"]
    assert plain.decode(plain.encode("ab  ab", add_special_tokens=False)) == "ab  ab"


def test_unigram_text_makes_no_control_token() -> None:
    tokenizer = tokenizer_from_gguf(metadata("t5", T5_ROWS))
    assert spelled(tokenizer, "a</s>") == ["▁", "a", "</s>"]
    ids = tokenizer.encode_rendered(RenderedPrompt(f"ab<{MARK}/s><x></s>", MARK))
    assert [tokenizer.token_str(i) for i in ids] == [
        *("▁ab", "<", "/", "s", ">", "<x>", "</s>"),
    ]
    assert ids[-2:] == [12, 1]


# --------------------------------------------------------------------------------------- WordPiece


def test_word_pieces() -> None:
    tokenizer = tokenizer_from_gguf(metadata("bert", BERT_ROWS, **BERT_MORE))
    assert spelled(tokenizer, "Hello  HÉLLO!", ends=True) == [
        *("[CLS]", "he", "##llo", "he", "##llo", "!", "[SEP]")
    ]
    assert spelled(tokenizer, "he中hex") == ["he", "中", "[UNK]"]
    ids = tokenizer.encode("hello !", add_special_tokens=False)
    assert tokenizer.decode(ids) == "hello !"
    assert [tokenizer.token_bytes(i) for i in ids] == [b" he", b"llo", b" !"]
    assert spelled(tokenizer, "[CLS]") == ["[CLS]"]
    ids = tokenizer.encode_rendered(RenderedPrompt(f"[{MARK}CLS]", MARK))
    assert [tokenizer.token_str(i) for i in ids] == ["[", "cls", "]"]


def test_word_pieces_keep_case_where_the_file_says_so() -> None:
    more = {**BERT_MORE, "normalizer.lowercase": False}
    tokenizer = tokenizer_from_gguf(metadata("bert", BERT_ROWS, **more))
    assert spelled(tokenizer, "É hello Hello") == ["É", "he", "##llo", "[UNK]"]


# --------------------------------------------------------------------------------------- characters


def test_characters() -> None:
    tokenizer = tokenizer_from_gguf(metadata("gemma4", GEMMA_ROWS, **GEMMA_MORE))
    assert spelled(tokenizer, "hi  hi\n\nhi", ends=True) == [
        *("<bos>", "hi", "▁", "▁hi", "\n\n", "hi")
    ]
    assert spelled(tokenizer, "é") == ["<0xC3>", "<0xA9>"]
    for text in (" hi", "é\n\n\n h", "  "):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize(("pre", "bos"), [("gemma4", True), ("sarvam-moe", False)])
def test_characters_by_pre(pre: str, bos: bool) -> None:
    tokenizer = tokenizer_from_gguf(metadata("gpt2", GEMMA_ROWS, pre=pre, **GEMMA_MORE))
    assert spelled(tokenizer, "hi hi", ends=True) == ["<bos>"] * bos + ["hi", "▁hi"]


# ---------------------------------------------------------------------------------------- refusals

BYTES = ValueKind.U8
LONG = [(f"{'a' * 20_000}{i}", N, -1.0) for i in range(4)]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "t5 without scores": (metadata("t5", T5_ROWS, scores=None), "scores"),
    "t5 with odd scores": (
        metadata("t5", [*T5_ROWS, ("c", N, float("nan"))]),
        "scores holds nan",
    ),
    "t5 without an unknown token": (metadata("t5", T5_ROWS[:2]), "unknown_token_id"),
    "t5 charsmap": (
        metadata("t5", T5_ROWS, precompiled_charsmap=GGUFArray(BYTES, [1, 2, 3])),
        "charsmap",
    ),
    "t5 charsmap of numbers": (
        metadata("t5", T5_ROWS, precompiled_charsmap=GGUFArray(ValueKind.I32, [1, 2, 3])),
        "charsmap",
    ),
    "long tokens": (metadata("t5", [*T5_ROWS, *LONG]), "long"),
    "long pieces": (metadata("llama", [*T5_ROWS, *LONG]), "long"),
    "bert without an unknown token": (metadata("bert", BERT_ROWS), "unknown_token_id"),
    "bert lowercase": (
        metadata("bert", BERT_ROWS, **BERT_MORE, **{"normalizer.lowercase": 1}),
        "lowercase",
    ),
    "space prefix": (metadata("llama", T5_ROWS, add_space_prefix="no"), "add_space_prefix"),
    "merges of characters": (
        metadata("gemma4", GEMMA_ROWS, **{**GEMMA_MORE, "merges": None}),
        "merges",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    values, word = REFUSED[case]
    with pytest.raises(ModelFileError, match=rf"^bad\.gguf: .*{word}"):
        tokenizer_from_gguf(values, "bad.gguf")
