"""Ids of GGUF vocabularies equal the expected ones of llama.cpp's case files."""

import lzma
from pathlib import Path

import pytest

from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.tokenizer import HFTokenizer
from octavo.weights.gguf import read_gguf

VOCABULARIES = Path(__file__).resolve().parents[2] / "../shared/data/vocab"
NAMES = ("bert-bge", "falcon", "gpt-2", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35")
SAME = {"llama-spm": "phi-3"}  # Phi-3 has Llama 2's tokens and some behind them


def cases(name: str) -> list[tuple[str, list[int]]]:
    """Texts and their ids."""
    inputs = VOCABULARIES / f"ggml-vocab-{name}.gguf.inp"
    if not inputs.exists():
        pytest.skip("needs shared test data")
    texts = inputs.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = inputs.with_suffix(".out").read_text().split("\n")
    ids = [[int(number) for number in line.split()] for line in lines]
    assert len(texts) <= len(ids)
    return list(zip(texts, ids, strict=False))


def load(name: str, folder: Path) -> HFTokenizer:
    path = VOCABULARIES / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        packed = path.with_name(path.name + ".xz")
        if not packed.exists():
            pytest.skip("needs shared test data")
        path = folder / path.name
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    file = read_gguf(path)
    tokenizer = tokenizer_from_gguf(file.metadata)
    file.close()
    return tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_reference_ids(name: str, tmp_path: Path) -> None:
    tokenizer = load(SAME.get(name, name), tmp_path)
    for text, expected in cases(name):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == expected, text
        if name != "bert-bge":  # which forgets case, accents and spaces
            assert tokenizer.decode(ids) == text
            assert b"".join(map(tokenizer.token_bytes, ids)).decode().endswith(text)


def test_word_pieces_surround_texts(tmp_path: Path) -> None:
    tokenizer = load("bert-bge", tmp_path)
    ids = tokenizer.encode("Hello world")
    assert [tokenizer.token_str(i) for i in ids] == ["[CLS]", "hello", "world", "[SEP]"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello world"
    assert tokenizer.decode(tokenizer.encode("unaffable", add_special_tokens=False)) == "unaffable"
