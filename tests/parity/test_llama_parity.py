"""The Llama family against transformers: float32 log-probabilities, however the tokens are fed."""

from pathlib import Path

import numpy as np
import pytest

from octavo.backends.base import RowSampling
from octavo.testing.tiny import tiny_llama

pytestmark = pytest.mark.parity

LENGTH = 70
STORIES = Path(__file__).resolve().parents[2] / "../shared/data/models/stories260K"

NINE_THREE = {"hidden": 54, "heads": 9, "kv_heads": 3}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SHAPES = {
    "9/3 heads": NINE_THREE,
    "9/3 heads, tied": NINE_THREE | {"tie": True},
    "15/5 heads": {"hidden": 60, "heads": 15, "kv_heads": 5, "layers": 3, "intermediate": 50},
    "one key head": {"hidden": 40, "heads": 5, "kv_heads": 1, "tie": True},
    "heads wider than the state": {"hidden": 48, "heads": 4, "kv_heads": 4, "head_dim": 32},
    "llama3 rope": NINE_THREE | {"hidden": 144, "rope_scaling": LLAMA3},
    "linear rope": NINE_THREE | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "padded rows": NINE_THREE | {"vocab": 320},
}


def tokens_below(vocab_size, count=LENGTH, seed=3):
    return np.random.default_rng(seed).integers(0, vocab_size, count).tolist()


@pytest.mark.parametrize("case", SHAPES)
def test_tiny_models(oracle, tmp_path, case):
    path = tiny_llama(tmp_path / "model", **SHAPES[case])
    ours = oracle.driver(path)
    tokens = tokens_below(ours.backend.vocab_size)
    expected = oracle.scores(oracle.load(path), tokens)
    oracle.agree(ours.scores(tokens, [LENGTH], "whole"), expected)
    oracle.agree(ours.scores(tokens, [33, 1, 30, 6], "chunked"), expected)
    oracle.agree(ours.scores(tokens, [40] + [1] * 30, "token by token"), expected)


@pytest.mark.parametrize("case", SHAPES)
def test_tiny_models_from_gguf(oracle, tmp_path, case):
    """The same weights as GGUF, rows of q and k permuted and rope factors as a tensor there."""
    path = tiny_llama(tmp_path / "model.gguf", format="gguf", **SHAPES[case])
    expected_of = oracle.load(tiny_llama(tmp_path / "folder", **SHAPES[case]))
    ours = oracle.driver(path)
    tokens = tokens_below(ours.backend.vocab_size)
    oracle.agree(ours.scores(tokens, [50, 20]), oracle.scores(expected_of, tokens))


def test_shared_blocks_and_neighbours(oracle, tmp_path):
    path = tiny_llama(tmp_path / "model", **NINE_THREE)
    ours = oracle.driver(path)
    tokens = tokens_below(ours.backend.vocab_size)
    expected = oracle.scores(oracle.load(path), tokens)
    ours.step({"parent": tokens[:43], "other": tokens[::-1]})
    had = ours.fork("parent", "scored")
    assert had == 40
    oracle.agree(ours.scores(tokens[had:], [5, LENGTH - had - 5]), expected[had:])


def test_greedy_tokens(oracle, tmp_path):
    path = tiny_llama(tmp_path / "model", **NINE_THREE)
    model = oracle.load(path)
    ours = oracle.driver(path)
    prompts = {str(n): tokens_below(ours.backend.vocab_size, n, seed=n) for n in (1, 5, 20, 33)}
    got = ours.generate(prompts, 25)
    for name, prompt in prompts.items():
        scores = oracle.scores(model, prompt + got[name])[len(prompt) - 1 : -1]
        assert got[name] == scores.argmax(axis=-1).tolist()


BASE = {
    "hidden_size": 54,
    "intermediate_size": 77,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 211,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MADE = {
    "attention biases": ("LlamaConfig", {"attention_bias": True}),
    "biases everywhere": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "large eps and theta": ("LlamaConfig", {"rms_norm_eps": 0.1, "rope_theta": 77.0}),
    "Mistral": ("MistralConfig", {"sliding_window": None}),
    "Mistral with a window": ("MistralConfig", {"sliding_window": 9}),
}


@pytest.mark.parametrize("case", MADE)
def test_models_saved_by_transformers(oracle, tmp_path, case):
    name, fields = MADE[case]
    model = oracle.make(tmp_path / "model", getattr(oracle.transformers, name)(**BASE | fields))
    tokens = tokens_below(BASE["vocab_size"])
    ours = oracle.driver(tmp_path / "model")
    oracle.agree(ours.scores(tokens, [LENGTH], "whole"), oracle.scores(model, tokens))
    oracle.agree(ours.scores(tokens, [20, 1, 49], "chunked"), oracle.scores(model, tokens))


def test_a_gguf_file_read_by_transformers(oracle, tmp_path):
    """An oracle for the GGUF form that shares no code with ours."""
    pytest.importorskip("gguf")
    tiny_llama(tmp_path / "model.gguf", format="gguf", **NINE_THREE)
    model = oracle.load(tmp_path, gguf_file="model.gguf")
    ours = oracle.driver(tmp_path / "model.gguf")
    tokens = tokens_below(ours.backend.vocab_size)
    oracle.agree(ours.scores(tokens, [LENGTH]), oracle.scores(model, tokens))


@pytest.mark.skipif(not STORIES.is_dir(), reason="the shared test data is not here")
@pytest.mark.parametrize("form", ["hf", "stories260K.gguf"])
def test_real_weights(oracle, form):
    ours = oracle.driver(STORIES.resolve() / form, block_size=32)
    tokens = [1, *tokens_below(512, 120)]
    oracle.agree(
        ours.scores(tokens, [90, 31]), oracle.scores(oracle.load(STORIES.resolve() / "hf"), tokens)
    )


def test_the_raw_log_probability_of_a_target(oracle, tmp_path):
    """Prompt scoring: each row's target is the next token of the prompt."""
    path = tiny_llama(tmp_path / "model", **NINE_THREE)
    ours = oracle.driver(path)
    tokens = tokens_below(ours.backend.vocab_size)
    rows = [RowSampling(target=t, num_logprobs=0, temperature=0.5) for t in tokens[1:]]
    out = ours.step({"s": tokens[:-1]}, {"s": rows})
    scores = oracle.scores(oracle.load(path), tokens)
    expected = [scores[i, t] for i, t in enumerate(tokens[1:])]
    assert out.token_ids.tolist() == tokens[1:]
    assert [row.chosen for row in out.logprobs] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    ranks = [1 + int((scores[i] > scores[i, t] + 1e-4).sum()) for i, t in enumerate(tokens[1:])]
    assert np.abs(np.subtract([row.rank for row in out.logprobs], ranks)).max() <= 1
