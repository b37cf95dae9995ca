"""Settings of strangers: good ones are read, bad ones are refused by the name of their key."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.models.llama import LlamaConfig

HF = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.dimension_count": 16,
    "llama.rope.freq_base": 5000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


@dataclass
class Tensor:
    values: np.ndarray

    @property
    def shape(self):
        return self.values.shape

    def float32(self):
        return self.values


TENSORS = {
    "model.embed_tokens.weight": Tensor(np.zeros((300, 64), np.float32)),
    "lm_head.weight": Tensor(np.zeros((300, 64), np.float32)),
}


def hf(**changes):
    return LlamaConfig.from_hf(HF | changes)


def gguf(tensors=TENSORS, drop=(), **changes):
    metadata = GGUF | {key.replace("__", "."): value for key, value in changes.items()}
    return LlamaConfig.from_gguf({k: v for k, v in metadata.items() if k not in drop}, tensors)


def test_both_forms_say_the_same():
    assert hf() == gguf()
    assert (hf().head_dim, hf().eos_token_ids) == (16, (2,))


def test_defaults():
    absent = ("num_key_value_heads", "rope_theta", "eos_token_id")
    config = LlamaConfig.from_hf({k: v for k, v in HF.items() if k not in absent})
    assert (config.num_kv_heads, config.rope.theta) == (4, 10000.0)
    assert config.eos_token_ids == ()
    assert hf(head_dim=None, eos_token_id=[2, 7, 2]).eos_token_ids == (2, 7)
    assert hf(head_dim=24).weight_shapes()["q_proj"] == (96, 64)


def test_biases_and_tying_of_a_gguf_file_are_seen_from_its_tensors():
    assert not gguf().tie_embeddings
    assert gguf(tensors={"model.embed_tokens.weight": TENSORS["lm_head.weight"]}).tie_embeddings
    layer = "model.layers.0.self_attn."
    config = gguf(tensors=TENSORS | {layer + "q_proj.bias": TENSORS["lm_head.weight"]})
    assert (config.qkv_bias, config.o_bias, config.mlp_bias) == (True, False, False)


def test_sliding_windows():
    assert hf(sliding_window=7).window == 0, "Llama has none"
    assert hf(model_type="mistral", sliding_window=7).window == 7
    assert hf(model_type="mistral", sliding_window=None).window == 0
    assert hf(model_type="mistral").window == 4096


BAD_HF = [
    ("hidden_size", "big"),
    ("hidden_size", 0),
    ("hidden_size", -64),
    ("hidden_size", 64.0),
    ("hidden_size", True),
    ("hidden_size", 2**40),
    ("num_attention_heads", 0),
    ("num_attention_heads", 5),
    ("num_attention_heads", 64),
    ("num_key_value_heads", 0),
    ("num_key_value_heads", 3),
    ("num_key_value_heads", 8),
    ("head_dim", 0),
    ("head_dim", 15),
    ("head_dim", 2**20),
    ("num_hidden_layers", 10**9),
    ("num_hidden_layers", []),
    ("intermediate_size", {}),
    ("vocab_size", None),
    ("vocab_size", 10**400),
    ("max_position_embeddings", 2**63),
    ("rms_norm_eps", -1),
    ("rms_norm_eps", math.nan),
    ("rms_norm_eps", "1e-5"),
    ("rope_theta", 0),
    ("rope_theta", math.inf),
    ("tie_word_embeddings", "yes"),
    ("attention_bias", 1),
    ("mlp_bias", "no"),
    ("hidden_act", "gelu"),
    ("hidden_act", 3),
    ("partial_rotary_factor", 0.5),
    ("quantization_config", {"bits": 4}),
    ("eos_token_id", -1),
    ("eos_token_id", [2, "x"]),
    ("eos_token_id", [2, 300]),
    ("rope_scaling", "linear"),
    ("rope_scaling.rope_type", {"rope_type": "yarn", "factor": 2.0}),
    ("rope_scaling.type", {"type": "dynamic", "factor": 2.0}),
    ("rope_scaling.factor", {"type": "linear"}),
    ("rope_scaling.factor", {"type": "linear", "factor": 0}),
    ("rope_parameters.type", {"rope_theta": 1e4}),
    ("rope_parameters.rope_theta", {"rope_type": "default", "rope_theta": -1}),
    ("rope_scaling.low_freq_factor", {"rope_type": "llama3", "factor": 8.0}),
]


@pytest.mark.parametrize(("key", "value"), BAD_HF)
def test_a_bad_setting_of_config_json_is_named(key, value):
    with pytest.raises(ModelFileError) as caught:
        hf(**{key.partition(".")[0]: value})
    assert str(caught.value).startswith(key)
    assert len(str(caught.value)) < 250


BAD_GGUF = [
    ("llama.attention.head_count", 0),
    ("llama.attention.head_count", 3),
    ("llama.attention.head_count", [4, 4]),
    ("llama.attention.head_count_kv", 3),
    ("llama.attention.key_length", 0),
    ("llama.attention.value_length", 8),
    ("llama.rope.dimension_count", 31),
    ("llama.rope.dimension_count", 8),
    ("llama.block_count", 10**9),
    ("llama.context_length", 2**63),
    ("llama.embedding_length", "wide"),
    ("llama.expert_count", 8),
    ("llama.rope.scaling.type", "yarn"),
    ("llama.rope.freq_base", math.nan),
    ("tokenizer.ggml.eos_token_id", 300),
    ("tokenizer.ggml.eos_token_id", -1),
]


@pytest.mark.parametrize(("key", "value"), BAD_GGUF)
def test_a_bad_setting_of_a_gguf_file_is_named(key, value):
    with pytest.raises(ModelFileError) as caught:
        gguf(**{key: value})
    assert str(caught.value).startswith(key)


@pytest.mark.parametrize("key", [k for k in GGUF if k.startswith("llama.") and "kv" not in k])
def test_missing_settings_are_named_or_have_a_default(key):
    if key.startswith("llama.rope."):
        assert isinstance(gguf(drop=[key]), LlamaConfig)
    else:
        with pytest.raises(ModelFileError, match=key):
            gguf(drop=[key])


def test_a_gguf_file_without_embedding():
    with pytest.raises(ModelFileError, match=r"token_embd\.weight"):
        gguf(tensors={})


def test_rope_scaling_of_both_forms():
    assert hf(rope_scaling={"type": "linear", "factor": 4.0}).rope.factors == (4.0,) * 8
    assert (
        gguf(**{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}).rope.factors
        == (4.0,) * 8
    )
    assert gguf(**{"llama.rope.scale_linear": 2.0}).rope.factors == (2.0,) * 8
    new = hf(rope_parameters={"rope_type": "default", "rope_theta": 123.0})
    assert (new.rope.theta, new.rope.factors) == (123.0, ())


def test_llama3_keeps_short_waves_and_stretches_long_ones():
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    factors = hf(rope_scaling=scaling, rope_theta=5e5, head_dim=128).rope.factors
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(8.0)
    assert list(factors) == sorted(factors)
    assert any(1.0 < f < 8.0 for f in factors)


def test_rope_factors_of_a_gguf_file():
    factors = np.arange(1, 9, dtype=np.float32)
    config = gguf(tensors=TENSORS | {"rope_freqs.weight": Tensor(factors)})
    assert config.rope.factors == tuple(range(1, 9))
    for bad in (factors[:3], factors * 0, factors * np.float32(np.nan)):
        with pytest.raises(ModelFileError, match="rope_freqs"):
            gguf(tensors=TENSORS | {"rope_freqs.weight": Tensor(bad)})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def read_or_refused(read, **changes):
    """The config, or None when the value was refused in one printable line."""
    try:
        return read(**changes)
    except ModelFileError as error:
        message = str(error)
    assert message.isprintable()
    return None


@given(st.sampled_from([*sorted(HF), "rope_scaling", "rope_parameters", "head_dim"]), json_values)
def test_any_value_is_read_or_refused(key, value):
    config = read_or_refused(hf, **{key: value})
    if config is not None:
        assert config.head_dim % 2 == 0
        assert config.num_heads % config.num_kv_heads == 0


@given(st.sampled_from(sorted(GGUF)), json_values)
def test_any_value_of_a_gguf_file_is_read_or_refused(key, value):
    config = read_or_refused(gguf, **{key: value})
    if config is not None:
        assert config.num_heads * config.head_dim == config.weight_shapes()["q_proj"][0]
