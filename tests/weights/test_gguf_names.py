"""GGUF names and Hugging Face names: a bijection by rules, and Llama's row order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.weights.names import (
    RULES,
    InterleavedHeads,
    PlusOne,
    to_gguf,
    to_hugging_face,
    transform,
)

LLAMA = RULES["llama"]


@pytest.mark.parametrize(
    ("gguf", "hugging_face"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
        ("blk.31.attn_q.weight", "model.layers.31.self_attn.q_proj.weight"),
        ("blk.5.attn_k.bias", "model.layers.5.self_attn.k_proj.bias"),
        ("blk.7.ffn_norm.weight", "model.layers.7.post_attention_layernorm.weight"),
        ("blk.120.ffn_down.weight", "model.layers.120.mlp.down_proj.weight"),
    ],
)
def test_names_both_ways(gguf, hugging_face):
    assert to_hugging_face(LLAMA, gguf) == hugging_face
    assert to_gguf(LLAMA, hugging_face) == gguf


@pytest.mark.parametrize(
    "name",
    [
        *("rope_freqs.weight", "blk.1.attn_x.weight", "blk.01.attn_q.weight"),
        *("blk.-1.attn_q.weight", "blk.{}.attn_q.weight", "blk..attn_q.weight"),
        *("weight", "", ".", "blk.0.attn_q"),
    ],
)
def test_other_names_stay(name):
    assert to_hugging_face(LLAMA, name) == name


@pytest.mark.parametrize("architecture", RULES)
@settings(max_examples=50, deadline=None)
@given(block=st.integers(0, 10**9 - 1), suffix=st.sampled_from(["weight", "bias"]))
def test_rules_are_a_bijection(architecture, block, suffix):
    rules = RULES[architecture]
    names = {f"{stem.format(block)}.{suffix}" for stem in rules.stems}
    renamed = {to_hugging_face(rules, name) for name in names}
    assert len(renamed) == len(names)
    assert not renamed & names
    assert {to_gguf(rules, name) for name in renamed} == names


def test_llama_rows_pair_neighbours():
    # two heads of four: stored pairs (0, 1) (2, 3) are elements (0, 2) (1, 3) of a head
    assert InterleavedHeads(2).row_order(8).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@settings(max_examples=50, deadline=None)
@given(heads=st.integers(1, 9), half=st.integers(1, 40))
def test_llama_row_order_is_the_inverse_of_the_converters(heads, half):
    rows = np.arange(heads * half * 2)
    stored = rows.reshape(heads, 2, half).swapaxes(1, 2).reshape(-1)
    assert np.array_equal(stored[InterleavedHeads(heads).row_order(len(rows))], rows)


def test_only_q_and_k_of_llama_are_reordered():
    metadata = {"llama.attention.head_count": 6, "llama.attention.head_count_kv": 2}
    found = {
        name: transform(LLAMA, f"blk.0.{name}.weight", 24, "llama", metadata)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up")
    }
    assert found == {
        "attn_q": InterleavedHeads(6),
        "attn_k": InterleavedHeads(2),
        "attn_v": None,
        "attn_output": None,
        "ffn_up": None,
    }
    gemma = RULES["gemma3"]
    assert transform(gemma, "blk.0.attn_q.weight", 24, "gemma3", metadata) is None
    assert transform(gemma, "blk.0.attn_q_norm.weight", 4, "gemma3", metadata) == PlusOne()


def test_keys_default_to_the_heads_of_queries():
    metadata = {"llama.attention.head_count": 6}
    assert transform(LLAMA, "blk.0.attn_k.weight", 24, "llama", metadata) == InterleavedHeads(6)


@pytest.mark.parametrize("heads", [0, -1, "four", 1.0, True, [4], None, 5, 24])
def test_head_counts_that_cannot_be(heads):
    with pytest.raises(ModelFileError, match=r"llama\.attention\.head_count"):
        transform(LLAMA, "blk.0.attn_q.weight", 24, "llama", {"llama.attention.head_count": heads})
