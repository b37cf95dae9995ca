"""Settings of strangers' Gemma files: good ones are read, bad ones are refused by their key."""

import math

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.models.gemma import Gemma3Config
from octavo.testing.tiny_gemma import TinyGemma
from octavo.weights.encodings import TensorType

SHAPE = TinyGemma(layers=7, period=6, vocab=300, head_dim=16)
HF = SHAPE.config(TensorType.F32)
GGUF = {k: v for k, v in SHAPE.gguf_metadata().items() if not k.startswith("tokenizer.ggml.to")}


class Embedding:
    shape = (300, 64)


TENSORS = {"model.embed_tokens.weight": Embedding()}


def hf(drop=(), **changes):
    return Gemma3Config.from_hf({k: v for k, v in (HF | changes).items() if k not in drop})


def gguf(drop=(), tensors=TENSORS, **changes):
    metadata = GGUF | {key.replace("__", "."): value for key, value in changes.items()}
    return Gemma3Config.from_gguf({k: v for k, v in metadata.items() if k not in drop}, tensors)


def test_both_forms_say_the_same():
    assert hf(query_pre_attn_scalar=16) == gguf()
    assert hf().sliding == (True,) * 5 + (False, True)
    assert (hf().rope.theta, hf().sliding_rope.theta) == (1e6, 1e4)


def test_defaults():
    known = hf(drop=["rope_theta", "rope_local_base_freq", "sliding_window_pattern"])
    assert known == hf(sliding_window_pattern=6)
    assert gguf(drop=["gemma3.rope.freq_base", "gemma3.rope.freq_base_swa"]) == gguf()
    assert hf(drop=["query_pre_attn_scalar"]).query_scale == 1 / 16
    assert hf(drop=["tie_word_embeddings"]).tie_embeddings


def test_kinds_of_layers_by_name():
    kinds = ["full_attention", "sliding_attention"]
    config = hf(num_hidden_layers=2, layer_types=kinds)
    assert config.sliding == (False, True)
    by_kind = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    }
    config = hf(rope_parameters=by_kind)
    assert (config.rope.theta, config.rope.factors) == (5e5, (8.0,) * 8)
    assert (config.sliding_rope.theta, config.sliding_rope.factors) == (1e3, ())


def test_rope_is_scaled_in_full_layers_only():
    old = hf(rope_scaling={"rope_type": "linear", "factor": 8.0})
    scaled = gguf(gemma3__rope__scaling__type="linear", gemma3__rope__scaling__factor=8.0)
    for config in (old, scaled):
        assert (config.rope.factors, config.sliding_rope.factors) == ((8.0,) * 8, ())


def test_the_scale_of_the_largest_size():
    """Of 62 layers: width / heads, as its config.json says; GGUF stores no such setting."""
    assert gguf(gemma3__block_count=62).query_scale == pytest.approx((64 / 4) ** -0.5)
    wide = {"gemma3__attention__key_length": 32, "gemma3__attention__value_length": 32}
    assert gguf(**wide).query_scale == pytest.approx(32**-0.5)
    assert gguf(gemma3__block_count=62, **wide).query_scale == pytest.approx(16**-0.5)


def test_no_window_no_sliding_layer():
    assert not any(gguf(drop=["gemma3.attention.sliding_window"]).sliding)


BAD_HF = [
    ("hidden_activation", "gelu"),
    ("quantization_config", {"bits": 4}),
    ("attn_logit_softcapping", 50.0),
    ("final_logit_softcapping", 30.0),
    ("use_bidirectional_attention", True),
    ("layer_types", ["full_attention"]),
    ("layer_types", ["full_attention"] * 6 + ["chunked_attention"]),
    ("layer_types", [1] * 7),
    ("sliding_window_pattern", 0),
    ("sliding_window", -1),
    ("query_pre_attn_scalar", 0),
    ("rope_local_base_freq", math.nan),
    ("rope_parameters", {"full_attention": 3}),
    ("rope_parameters", {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}),
    ("rope_parameters", {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}),
    ("head_dim", 15),
]


@pytest.mark.parametrize(("key", "value"), BAD_HF)
def test_a_bad_setting_of_config_json_is_named(key, value):
    with pytest.raises(ModelFileError) as caught:
        hf(**{key: value})
    assert str(caught.value).startswith(key)


BAD_GGUF = [
    ("gemma3.final_logit_softcapping", 30.0),
    ("gemma3.attn_logit_softcapping", 50.0),
    ("gemma3.attention.causal", False),
    ("gemma3.expert_count", 8),
    ("gemma3.rope.dimension_count", 8),
    ("gemma3.attention.value_length", 8),
    ("gemma3.attention.head_count_kv", 3),
    ("gemma3.attention.sliding_window_pattern", 0),
    ("gemma3.attention.sliding_window", -5),
    ("gemma3.rope.freq_base_swa", 0.0),
    ("gemma3.rope.scaling.type", "yarn"),
    ("gemma3.block_count", 10**9),
    ("tokenizer.ggml.eos_token_id", 300),
]


@pytest.mark.parametrize(("key", "value"), BAD_GGUF)
def test_a_bad_setting_of_a_gguf_file_is_named(key, value):
    with pytest.raises(ModelFileError) as caught:
        gguf(**{key: value})
    assert str(caught.value).startswith(key)


def test_norms_are_stored_plus_one(tmp_path):
    from octavo.testing.tiny_gemma import tiny_gemma
    from octavo.weights.checkpoint import open_checkpoint

    path = tiny_gemma(tmp_path / "m.gguf", format="gguf")
    weights = TinyGemma().weights()
    with open_checkpoint(path) as checkpoint:
        for name in ("model.norm", "model.layers.1.self_attn.q_norm"):
            tensor = checkpoint.tensors[f"{name}.weight"]
            np.testing.assert_allclose(
                tensor.float32(), weights[f"{name}.weight"], rtol=0, atol=1e-6
            )
            assert abs(float(np.mean(tensor.float32()))) < 0.3
