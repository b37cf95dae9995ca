"""tokenizer.json of real models: transformers' ids, and the ids of llama.cpp's case files.

Wants what scripts/fetch-test-models fetches, in OCTAVO_TEST_MODELS or in `test-models`.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.tokenizer import HFTokenizer, load_tokenizer
from octavo.weights.gguf_metadata import GGUFArray, ValueKind

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("OCTAVO_TEST_MODELS") or PROJECT / "test-models")
VOCABULARIES = PROJECT / "../shared/data/vocab"
NAMES = ("qwen3", "gemma3", "llama3_1", "gptoss", "deepseek_v3")
KEY = "tokenizer.ggml."


def folder(name: str) -> Path:
    if not (FOLDER / name / "tokenizer.json").is_file():
        pytest.skip(f"needs the tokenizer {name}, which scripts/fetch-test-models fetches")
    return FOLDER / name


def cases(name: str) -> list[tuple[str, list[int]]]:
    inputs = VOCABULARIES / f"ggml-vocab-{name}.gguf.inp"
    if not inputs.exists():
        pytest.skip("needs shared test data")
    texts = inputs.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = inputs.with_suffix(".out").read_text().split("\n")
    ids = [[int(number) for number in line.split()] for line in lines]
    return list(zip(texts, ids, strict=False))


@pytest.mark.parity
@pytest.mark.parametrize("name", NAMES)
def test_equals_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(folder(name))
    ours = load_tokenizer(folder(name))
    special = sorted(ours.special_tokens)[:4]
    texts = [text for text, _ in cases("qwen35")]
    texts += [f"{special[0]}a {special[1]}\n{special[2]} {special[3]}", "a\u0301\u00a0\u3000b\r\n"]
    # transformers 5 replaces DeepSeek's class and then forgets its add_bos_token.
    for text in texts:
        for ends in (False,) if name == "deepseek_v3" else (False, True):
            expected = reference(text, add_special_tokens=ends)["input_ids"]
            assert ours.encode(text, add_special_tokens=ends) == expected, text
        ids = ours.encode(text, add_special_tokens=False)
        assert ours.decode(ids) == reference.decode(ids, clean_up_tokenization_spaces=False)
    assert ours.bos_token_id == reference.bos_token_id
    assert ours.eos_token_id == reference.eos_token_id


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("llama3", "llama-bpe"),
        ("command_r_plus", "command-r"),
        ("gemma3", "gemma-4"),
        ("deepseek_llm", "deepseek-llm"),
    ],
)
def test_tokenizer_json_equals_llama_cpp(name: str, reference: str) -> None:
    expected = cases(reference)
    tokenizer = load_tokenizer(folder(name))
    for text, ids in expected:
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text


@pytest.mark.parametrize(
    ("name", "reference", "model", "pre"),
    [
        ("llama3", "llama-bpe", "gpt2", "llama-bpe"),
        ("command_r_plus", "command-r", "gpt2", "command-r"),
        ("gemma3", "gemma-4", "gemma4", "default"),
        ("deepseek_llm", "deepseek-llm", "gpt2", "deepseek-llm"),
    ],
)
def test_the_same_vocabulary_in_gguf(name: str, reference: str, model: str, pre: str) -> None:
    expected = cases(reference)
    tokenizer = as_gguf(folder(name), model, pre)
    for text, ids in expected:
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text
        assert tokenizer.decode(ids) == text


def as_gguf(path: Path, model: str, pre: str) -> HFTokenizer:
    """The vocabulary of tokenizer.json as a GGUF file would give it."""
    parts = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = parts["model"]["vocab"]
    added = {token["content"]: token for token in parts["added_tokens"]}
    numbers = vocabulary | {content: token["id"] for content, token in added.items()}
    tokens = [f"[PAD{i}]" for i in range(max(numbers.values()) + 1)]
    for token, number in numbers.items():
        tokens[number] = token
    types = [_type(token, added) for token in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in parts["model"]["merges"]]
    metadata: dict[str, Any] = {
        KEY + "model": model,
        KEY + "pre": pre,
        KEY + "tokens": GGUFArray(ValueKind.STRING, tokens),
        KEY + "token_type": GGUFArray(ValueKind.I32, types),
        KEY + "merges": GGUFArray(ValueKind.STRING, merges),
        KEY + "scores": GGUFArray(ValueKind.F32, [-float(i) for i in range(len(tokens))]),
    }
    return tokenizer_from_gguf(metadata)


def _type(token: str, added: dict[str, Any]) -> int:
    if token in added:
        return 3 if added[token]["special"] else 4
    return 6 if token.startswith("<0x") and token.endswith(">") and len(token) == 6 else 1
