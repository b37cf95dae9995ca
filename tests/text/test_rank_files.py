"""Folders with tiktoken's ranks or tekken.json: ids of a slow twin, and what is refused."""

import base64
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.text.rank_files import TEKKEN_TOKENS
from octavo.text.tokenizer import HFTokenizer, load_tokenizer

MERGED = [b"he", b"ll", b"hell", b"hello", b" h", b" he", b"\xc3\xa9", b"aa", b"aab", b"\n\n"]
TOKENS = [bytes([byte]) for byte in range(256)] + MERGED
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ADDED = {"266": {"content": "<|end|>", "special": True}, "270": {"content": "<tool>"}}


def tiktoken_lines(tokens: Sequence[bytes] = TOKENS) -> str:
    return "".join(f"{base64.b64encode(t).decode()} {rank}\n" for rank, t in enumerate(tokens))


def tiktoken_folder(path: Path, lines: str, name: str = "tokenizer.model", **config: Any) -> Path:
    (path / name).write_text(lines, encoding="utf-8")
    config = {"added_tokens_decoder": ADDED, "eos_token": "<|end|>"} | config
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def tekken(tokens: Sequence[bytes] = TOKENS, special: int = 24, **changes: Any) -> dict[str, Any]:
    vocabulary = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    data: dict[str, Any] = {
        "config": {
            "pattern": PATTERN,
            "default_vocab_size": special + len(tokens),
            "default_num_special_tokens": special,
            "version": "v3",
        },
        "vocab": vocabulary,
    }
    return data | changes


def tekken_folder(path: Path, data: Any) -> Path:
    (path / "tekken.json").write_text(json.dumps(data), encoding="utf-8")
    return path


def slow_twin(piece: bytes) -> list[int]:
    """tiktoken's rule as it is written: again and again the pair of the lowest rank."""
    ranks = {token: rank for rank, token in enumerate(TOKENS)}
    parts = [bytes([byte]) for byte in piece]
    while True:
        pairs = [ranks.get(a + b, len(ranks)) for a, b in pairwise(parts)]
        if piece in ranks or not pairs or min(pairs) == len(ranks):
            return [ranks[piece]] if piece in ranks else [ranks[part] for part in parts]
        i = pairs.index(min(pairs))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return load_tokenizer(tiktoken_folder(tmp_path_factory.mktemp("ranks"), tiktoken_lines()))


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.text(st.sampled_from("helloabé")))
def test_equals_the_slow_twin(ranked: HFTokenizer, word: str) -> None:
    assert ranked.encode(word) == slow_twin(word.encode())


@given(text=st.text(max_size=20))
@settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_round_trip(ranked: HFTokenizer, text: str) -> None:
    ids = ranked.encode(text)
    assert b"".join(map(ranked.token_bytes, ids)) == text.encode()


def test_tiktoken(ranked: HFTokenizer) -> None:
    assert ranked.encode("hello<|end|><tool>") == [259, 266, 270]
    assert ranked.special_tokens == {"<|end|>": 266}
    assert (ranked.eos_token, ranked.eos_token_id, ranked.vocab_size) == ("<|end|>", 266, 271)
    assert ranked.decode([259, 266, 270]) == "hello<|end|><tool>"
    assert ranked.token_bytes(268) == b"", "an id without a token"


def test_classes(tmp_path: Path) -> None:
    qwen = tiktoken_folder(
        tmp_path,
        tiktoken_lines(),
        "qwen.tiktoken",
        tokenizer_class="QWenTokenizer",
        added_tokens_decoder={},
    )
    tokenizer = load_tokenizer(qwen)
    assert tokenizer.special_tokens["<|im_end|>"] == len(TOKENS) + 2
    assert tokenizer.vocab_size == len(TOKENS) + 208
    with pytest.raises(ModelFileError, match="OtherTokenizer"):
        load_tokenizer(
            tiktoken_folder(
                tmp_path, tiktoken_lines(), "qwen.tiktoken", tokenizer_class="OtherTokenizer"
            )
        )


def test_tekken(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tekken_folder(tmp_path, tekken()))
    first = 24
    assert tokenizer.encode("hello") == [1, first + 259]
    assert tokenizer.encode("[INST]é", add_special_tokens=False) == [3, first + 262]
    assert tokenizer.token_str(23) == "<SPECIAL_23>"
    assert tokenizer.special_ids == set(range(first))
    assert [tokenizer.token_str(i) for i in range(20)] == list(TEKKEN_TOKENS)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.vocab_size == first + len(TOKENS)
    assert tokenizer.decode([1, first + 259], skip_special_tokens=True) == "hello"


def test_tekken_lists_its_tokens_and_more_ranks_than_it_uses(tmp_path: Path) -> None:
    special = [
        {"rank": 1, "token_str": "<s>", "is_control": True},
        {"rank": 0, "token_str": "[THINK]", "is_control": False},
    ]
    data = tekken([*TOKENS, b"never"], special=4, special_tokens=special)
    data["config"]["default_vocab_size"] -= 1
    tokenizer = load_tokenizer(tekken_folder(tmp_path, data))
    assert tokenizer.vocab_size == 4 + len(TOKENS)
    assert tokenizer.special_ids == {1, 2, 3}
    assert tokenizer.encode("[THINK]a", add_special_tokens=False) == [0, 4 + ord("a")]


TWICE = [*TOKENS[:-1], TOKENS[0]]
BROKEN_RANKS = {
    "empty": ("", "empty"),
    "no ranks": ("\n\n", "rank"),
    "SentencePiece": ("\x0a\x0e\x0a\x05<unk>", "SentencePiece"),
    "no base64": ("é! 0\n", "line 1"),
    "no number": ("aGk= x\n", "line 1"),
    "a huge number": (f"aGk= {'9' * 5000}\n", "line 1"),
    "a negative rank": ("aGk= -1\n", "ranks"),
    "a rank twice": ("aGk= 0\naGo= 0\n", "line 2"),
    "a gap": (tiktoken_lines() + "aGk= 999\n", "ranks"),
    "bytes missing": ("aGk= 0\n", "256"),
    "bytes twice": (tiktoken_lines(TWICE), "same bytes"),
    "long tokens": (tiktoken_lines([*TOKENS, b"a" * 40_000]), "long"),
}


@pytest.mark.parametrize("case", BROKEN_RANKS)
def test_broken_ranks(case: str, tmp_path: Path) -> None:
    lines, word = BROKEN_RANKS[case]
    with pytest.raises(ModelFileError, match=word):
        load_tokenizer(tiktoken_folder(tmp_path, lines, added_tokens_decoder={}))


@pytest.mark.parametrize(
    "entries",
    [
        {"5": {"content": "<x>"}},
        {"266": {"content": "<x>"}, "0266": {"content": "<y>"}},
        {"x": {"content": "<x>"}},
        {"99999999999": {"content": "<x>"}},
        {"266": {"content": 3}},
        {"266": "x"},
        {"266": {"content": "hello"}},
    ],
)
def test_broken_added_tokens(entries: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer(_config\.json|\.model)"):
        load_tokenizer(tiktoken_folder(tmp_path, tiktoken_lines(), added_tokens_decoder=entries))


def _config(**changes: Any) -> dict[str, Any]:
    return {"config": tekken()["config"] | changes}


BROKEN_TEKKEN: dict[str, tuple[Any, str]] = {
    "a list": ([], "object"),
    "no config": (tekken(config=None), "config"),
    "no pattern": (tekken(**_config(pattern=None)), "pattern"),
    "a broken pattern": (tekken(**_config(pattern="(")), "pattern"),
    "a huge size": (tekken(**_config(default_vocab_size=1 << 40)), "default_vocab_size"),
    "more than listed": (tekken(**_config(default_vocab_size=999)), "vocab"),
    "only special": (tekken(**_config(default_num_special_tokens=500)), "room"),
    "a text": (tekken(**_config(default_num_special_tokens="1")), "default_num_special_tokens"),
    "vocab is no list": (tekken(vocab={}), "vocab"),
    "entries are no objects": (tekken(vocab=[1] * 999), "entry 0"),
    "no base64": (tekken(vocab=[{"rank": 0, "token_bytes": "é"}] * 999), "entry 0"),
    "wrong rank": (tekken(vocab=tekken()["vocab"][1:] + [{}] * 9), "entry 0"),
    "special is no list": (tekken(special_tokens=3), "special_tokens"),
    "special of a high rank": (
        tekken(special_tokens=[{"rank": 24, "token_str": "x"}]),
        "special_tokens",
    ),
    "special without text": (tekken(special_tokens=[{"rank": 0}]), "token_str"),
    "special twice": (
        tekken(special_tokens=[{"rank": i, "token_str": "<x>"} for i in range(2)]),
        "same text",
    ),
    "special and rank": (tekken(special_tokens=[{"rank": 0, "token_str": "hello"}]), "both"),
}


@pytest.mark.parametrize("case", BROKEN_TEKKEN)
def test_broken_tekken(case: str, tmp_path: Path) -> None:
    data, word = BROKEN_TEKKEN[case]
    with pytest.raises(ModelFileError, match=rf"tekken\.json.*{word}"):
        load_tokenizer(tekken_folder(tmp_path, data))
