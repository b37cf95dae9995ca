"""Tokenizers from GGUF metadata: each kind of vocabulary in small, and what is refused."""

from typing import Any

import pytest

from octavo.errors import ModelFileError, NotBuilt
from octavo.text.gguf_tokenizer import KNOWN_KINDS, tokenizer_from_gguf
from octavo.text.pre_tokenizers import PRE_TOKENIZERS
from octavo.text.spelling import byte_letters
from octavo.weights.gguf_metadata import GGUFArray, ValueKind

KEY = "tokenizer.ggml."


def byte_metadata(**changes: Any) -> dict[str, Any]:
    tokens = [*byte_letters(), "hi", "<|im_end|>", "<tool>"]
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.context_length": 64,
        KEY + "model": "gpt2",
        KEY + "pre": "smollm",
        KEY + "tokens": GGUFArray(ValueKind.STRING, tokens),
        KEY + "token_type": GGUFArray(ValueKind.I32, [1] * 257 + [3, 4]),
        KEY + "merges": GGUFArray(ValueKind.STRING, ["h i"]),
        KEY + "eos_token_id": 257,
    }
    metadata |= {KEY + name: value for name, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


def piece_metadata(**changes: Any) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "h", "i", "hi"]
    tokens += ["▁h", "▁hi"]
    types = [2, 3, 3, *[6] * 256, *[1] * 6]
    scores = [0.0] * 259 + [-4.0, -5.0, -6.0, -2.0, -3.0, -1.0]
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        KEY + "model": "llama",
        KEY + "tokens": GGUFArray(ValueKind.STRING, tokens),
        KEY + "token_type": GGUFArray(ValueKind.I32, types),
        KEY + "scores": GGUFArray(ValueKind.F32, scores),
        KEY + "bos_token_id": 1,
        KEY + "eos_token_id": 2,
        KEY + "unknown_token_id": 0,
    }
    metadata |= {KEY + name: value for name, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


# ------------------------------------------------------------------------------------- byte level


def test_byte_level() -> None:
    tokenizer = tokenizer_from_gguf(byte_metadata())
    assert tokenizer.vocab_size == 259
    assert tokenizer.encode("hi<|im_end|><tool>é") == [256, 257, 258, 0xC3, 0xA9]
    assert tokenizer.decode(tokenizer.encode("héllo 😊\n")) == "héllo 😊\n"
    assert tokenizer.special_tokens == {"<|im_end|>": 257}
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 257)
    assert (tokenizer.bos_token, tokenizer.bos_token_id) == (None, None)
    assert tokenizer.info()["model_max_length"] == 64


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_the_text(name: str) -> None:
    tokenizer = tokenizer_from_gguf(byte_metadata(pre=name))
    text = "Hello, I'm 12345 years OLD!\r\n\n  x  中文 ひらがな é e\u0301 `code` ½ \t$ 😊 "
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


def test_bos_where_the_file_asks_for_it() -> None:
    bos = {"bos_token_id": 257}
    assert tokenizer_from_gguf(byte_metadata(**bos)).encode("hi") == [256]
    assert tokenizer_from_gguf(byte_metadata(**bos, add_bos_token=True)).encode("hi") == [257, 256]
    assert tokenizer_from_gguf(byte_metadata(**bos, pre="llama-bpe")).encode("hi") == [257, 256]
    both = byte_metadata(**bos, add_bos_token=True, add_eos_token=True)
    assert tokenizer_from_gguf(both).encode("hi") == [257, 256, 257]
    assert tokenizer_from_gguf(both).encode("hi", add_special_tokens=False) == [256]


def test_tokens_that_are_spelled_the_same() -> None:
    tokens = GGUFArray(ValueKind.STRING, [*byte_letters(), "hi", "<|im_end|>", "hi"])
    tokenizer = tokenizer_from_gguf(byte_metadata(tokens=tokens, token_type=None))
    assert tokenizer.vocab_size == 259
    assert tokenizer.encode("hi") == [256]
    assert tokenizer.token_bytes(258) == b"hi"


# ---------------------------------------------------------------------------------- SentencePiece


def test_sentencepiece() -> None:
    tokenizer = tokenizer_from_gguf(piece_metadata())
    assert [tokenizer.token_str(i) for i in tokenizer.encode("hi hé")] == [
        *("<s>", "▁hi", "▁h", "<0xC3>", "<0xA9>")
    ]
    assert tokenizer.decode(tokenizer.encode("hi hé", add_special_tokens=False)) == "hi hé"
    assert tokenizer.encode(" hi", add_special_tokens=False) == [259, 264]
    assert tokenizer.special_tokens == {"<s>": 1, "</s>": 2}


def test_sentencepiece_options() -> None:
    tokenizer = tokenizer_from_gguf(piece_metadata(add_space_prefix=False, add_bos_token=False))
    assert [tokenizer.token_str(i) for i in tokenizer.encode("hi hi")] == ["hi", "▁hi"]
    assert tokenizer.decode(tokenizer.encode(" hi")) == " hi"


# --------------------------------------------------------------------------------------- refusals

STRINGS, INTS, FLOATS = ValueKind.STRING, ValueKind.I32, ValueKind.F32
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no kind": (byte_metadata(model=None), r"model is missing; known: gpt2, "),
    "unknown kind": (byte_metadata(model="morse"), "morse"),
    "no tokens": (byte_metadata(tokens=None), "tokens"),
    "empty tokens": (byte_metadata(tokens=GGUFArray(STRINGS)), "tokens"),
    "tokens are numbers": (byte_metadata(tokens=GGUFArray(INTS, [1])), "tokens"),
    "tokens is text": (byte_metadata(tokens="abc"), "tokens"),
    "token types of another kind": (
        byte_metadata(token_type=GGUFArray(ValueKind.U8, [1] * 259)),
        "token_type",
    ),
    "fewer types": (byte_metadata(token_type=GGUFArray(INTS, [1] * 3)), "token_type"),
    "fewer scores": (piece_metadata(scores=GGUFArray(FLOATS, [0.0] * 3)), "scores"),
    "fewer scores, byte level": (byte_metadata(scores=GGUFArray(FLOATS, [0.0] * 3)), "scores"),
    "no scores": (piece_metadata(scores=None), "scores"),
    "eos without a token": (byte_metadata(eos_token_id=259), "eos"),
    "eos is negative": (byte_metadata(eos_token_id=-1), "eos"),
    "eos is text": (byte_metadata(eos_token_id="x"), "eos"),
    "add_bos is a number": (byte_metadata(add_bos_token=1), "add_bos_token"),
    "unknown pre": (byte_metadata(pre="morse"), "morse"),
    "pre is a list": (byte_metadata(pre=GGUFArray(STRINGS)), "pre"),
    "no merges": (byte_metadata(merges=None), "merges"),
    "a score that is no number": (
        piece_metadata(scores=GGUFArray(FLOATS, [float("nan")] * 265)),
        "scores",
    ),
    "eos is a long list": (byte_metadata(eos_token_id=GGUFArray(INTS, [7] * 9999)), "eos"),
    "kind is a long text": (byte_metadata(model="m" * 9999), "model"),
    "merge of one part": (byte_metadata(merges=GGUFArray(STRINGS, ["hi"])), "merges"),
    "merge that makes no token": (byte_metadata(merges=GGUFArray(STRINGS, ["hi hi"])), "merges"),
    "merge of strangers": (byte_metadata(merges=GGUFArray(STRINGS, ["hi there"])), "merges"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    metadata, word = REFUSED[case]
    with pytest.raises(ModelFileError, match=word):
        tokenizer_from_gguf(metadata)
    with pytest.raises(ModelFileError, match=r"^bad\.gguf: .{1,2000}$"):
        tokenizer_from_gguf(metadata, "bad.gguf")


@pytest.mark.parametrize("kind", KNOWN_KINDS)
def test_known_kinds_that_are_not_built(kind: str) -> None:
    with pytest.raises(NotBuilt, match=rf"^bad\.gguf: .*{kind}.*not built yet; built: gpt2"):
        tokenizer_from_gguf(byte_metadata(model=kind), "bad.gguf")
