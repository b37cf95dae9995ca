"""The tiny checkpoints themselves: valid for the libraries they imitate, and not degenerate."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from octavo.testing import tiny_tokenizer
from octavo.testing.tiny import TinyLlama, tiny_llama
from octavo.weights.checkpoint import open_checkpoint


def test_tokenizer_is_loadable_and_byte_level(tmp_path):
    folder = tiny_llama(tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == tiny_tokenizer.VOCAB_SIZE == 273
    text = "the thing 42 naïve 🎈<|im_end|>"
    encoding = tokenizer.encode(text)
    assert encoding.tokens[0] == "t"
    assert "Ġthe" in tokenizer.encode(" the").tokens
    assert encoding.ids[-1] == tiny_tokenizer.token_id(tiny_tokenizer.EOS)
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text


def test_gguf_vocabulary_is_the_folders(tmp_path):
    folder = tiny_llama(tmp_path / "model")
    metadata = open_checkpoint(tiny_llama(tmp_path / "m.gguf", format="gguf")).metadata
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = metadata["tokenizer.ggml.tokens"]
    assert {token: index for index, token in enumerate(tokens)} == tokenizer.get_vocab()
    config = json.loads((folder / "config.json").read_text())
    for name in ("bos", "eos"):
        assert metadata[f"tokenizer.ggml.{name}_token_id"] == config[f"{name}_token_id"]
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert metadata["tokenizer.chat_template"] == template


def test_rows_above_the_vocabulary_are_unused_tokens(tmp_path):
    path = tiny_llama(tmp_path / "m.gguf", format="gguf", vocab=280, template=None)
    checkpoint = open_checkpoint(path)
    assert len(checkpoint.metadata["tokenizer.ggml.tokens"]) == 280
    assert checkpoint.metadata["tokenizer.ggml.token_type"][272:275] == [3, 5, 5]
    assert checkpoint.tensors["model.embed_tokens.weight"].shape[0] == 280
    assert "tokenizer.chat_template" not in checkpoint.metadata


def test_seeds_differ_and_repeat():
    one, same, other = (TinyLlama(seed=seed).weights() for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not any(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("hidden", [32, 64, 144])
def test_logits_spread(hidden):
    head = TinyLlama(hidden=hidden).weights()["lm_head.weight"]
    state = np.random.default_rng(0).standard_normal(hidden)
    logits = head @ (state / np.sqrt(np.mean(state**2)))
    assert 1.6 < logits.std() < 2.4
