"""Ids of SmolLM2's GGUF equal those of transformers.

The oracle is its fast tokenizer on the file's vocabulary and merges with the published pipeline:
its own reader of GGUF files cuts no digits off, so that two spaces before a digit become other
tokens there. The model file is found through OCTAVO_SMOLLM2_GGUF or in the quick start's place.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.marks import CANDIDATES, Marker
from octavo.text.tokenizer import HFTokenizer, RenderedPrompt
from octavo.weights.gguf import read_gguf

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def path() -> Path:
    given = os.environ.get("OCTAVO_SMOLLM2_GGUF")
    if given is None:
        from octavo.weights.quickstart import smollm2_path

        given = str(smollm2_path(progress=False))
    return Path(given)


@pytest.fixture(scope="module")
def metadata(path: Path) -> dict[str, Any]:
    return read_gguf(path).metadata


@pytest.fixture(scope="module")
def ours(metadata: dict[str, Any]) -> HFTokenizer:
    return tokenizer_from_gguf(metadata)


@pytest.fixture(scope="module")
def theirs(metadata: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    special = [t for t, kind in zip(tokens, types, strict=True) if kind == 3]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=tokens[1], eos_token=tokens[2], unk_token=tokens[0]
    )


def random_texts(count: int, special: list[str]) -> list[str]:
    """Unicode of all planes, with words, digits, spaces and control tokens strewn in."""
    rng = random.Random(0)
    ranges = [(0, 0x7F), (0x20, 0x7E), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF)]
    ranges += [(0x10000, 0x10FFFF), (0x1F300, 0x1FAFF), (0x30, 0x39), (0x660, 0x669)]
    words = [
        *special,
        " ",
        "  ",
        "\n",
        "\r\n\t",
        "'s",
        "'LL",
        " the",
        "Hello",
        "123",
        "½",
        "e\u0301",
    ]

    def piece() -> str:
        if rng.random() < 0.3:
            return rng.choice(words)
        low, high = rng.choice(ranges)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6)))

    return ["".join(piece() for _ in range(rng.randint(0, 12))) for _ in range(count)]


def test_ids_equal_transformers(ours: HFTokenizer, theirs: Any) -> None:
    texts = random_texts(10_000, list(ours.special_tokens))
    for text, ids in zip(texts, theirs(texts)["input_ids"], strict=True):
        assert ours.encode(text) == ids, text


def test_text_equals_transformers(ours: HFTokenizer, theirs: Any) -> None:
    rng = random.Random(1)
    for _ in range(2000):
        ids = [rng.randrange(ours.vocab_size) for _ in range(rng.randint(0, 20))]
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(
                ids, skip_special_tokens=skip
            )


def test_marked_text_without_forgeries_equals_transformers(ours: HFTokenizer, theirs: Any) -> None:
    """Marks that break no token leave the ids as they are."""
    mark = CANDIDATES[0]
    marker = Marker(ours.special_tokens)
    texts = [t + "<|im_" for t in random_texts(300, []) if mark not in t]
    for text in texts:
        rendered = f"<|im_start|>user\n{marker.mark(text, mark)}<|im_end|>\n"
        prompt = RenderedPrompt(rendered, mark)
        ids = theirs.encode(prompt.text, add_special_tokens=False)
        assert ours.encode_rendered(prompt) == ids
