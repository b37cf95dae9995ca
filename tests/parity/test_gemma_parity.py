"""Gemma 3 against transformers: float32 log-probabilities, however the tokens are fed."""

import numpy as np
import pytest

from octavo.testing.tiny_gemma import tiny_gemma

pytestmark = pytest.mark.parity

LENGTH = 70
SHAPES = {
    "windows in two layers of three": {},
    "one key head, own head": {"kv_heads": 1, "tie": False},
    "a scale that is not the head's": {"query_scalar": 50},
    "linear rope in full layers": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "a window beyond the context": {"window": 100},
    "six layers": {"layers": 6, "period": 6, "hidden": 54, "heads": 9, "kv_heads": 3},
}


def tokens_below(vocab_size):
    return np.random.default_rng(4).integers(0, vocab_size, LENGTH).tolist()


@pytest.mark.parametrize("case", SHAPES)
def test_tiny_models(oracle, tmp_path, case):
    path = tiny_gemma(tmp_path / "model", **SHAPES[case])
    ours = oracle.driver(path)
    tokens = tokens_below(ours.backend.vocab_size)
    expected = oracle.scores(oracle.load(path), tokens)
    oracle.agree(ours.scores(tokens, [LENGTH], "whole"), expected)
    oracle.agree(ours.scores(tokens, [33, 1, 30, 6], "chunked"), expected)


@pytest.mark.parametrize("case", SHAPES.keys() - {"a scale that is not the head's"})
def test_tiny_models_from_gguf(oracle, tmp_path, case):
    """The same weights as GGUF, where norms are stored as weight + 1."""
    path = tiny_gemma(tmp_path / "model.gguf", format="gguf", **SHAPES[case])
    expected_of = oracle.load(tiny_gemma(tmp_path / "folder", **SHAPES[case]))
    ours = oracle.driver(path)
    tokens = tokens_below(ours.backend.vocab_size)
    oracle.agree(ours.scores(tokens, [50, 20]), oracle.scores(expected_of, tokens))


MADE = {
    "as transformers makes it": {},
    "its kinds of layers": {
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
        },
    },
    "attention biases": {"attention_bias": True},
}


@pytest.mark.parametrize("case", MADE)
def test_models_saved_by_transformers(oracle, tmp_path, case):
    config = oracle.transformers.Gemma3TextConfig(
        hidden_size=54,
        intermediate_size=77,
        num_hidden_layers=3,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=12,
        vocab_size=211,
        sliding_window=11,
        query_pre_attn_scalar=12,
        **MADE[case],
    )
    model = oracle.make(tmp_path / "model", config)
    tokens = tokens_below(211)
    ours = oracle.driver(tmp_path / "model")
    oracle.agree(ours.scores(tokens, [20, 1, 49]), oracle.scores(model, tokens))


def test_a_gguf_file_read_by_transformers(oracle, tmp_path):
    """An oracle for the GGUF form that shares no code with ours."""
    pytest.importorskip("gguf")
    shape = {"layers": 6, "period": 6, "query_scalar": 256, "head_dim": 256}
    tiny_gemma(tmp_path / "model.gguf", format="gguf", **shape)
    model = oracle.load(tmp_path, gguf_file="model.gguf")
    ours = oracle.driver(tmp_path / "model.gguf")
    tokens = tokens_below(ours.backend.vocab_size)
    oracle.agree(ours.scores(tokens, [LENGTH]), oracle.scores(model, tokens))
