"""The Llama family: Llama 1 to 3, Mistral, SmolLM and all that share their shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.errors import ModelFileError
from octavo.graph import Graph, RopeConfig
from octavo.models.fields import Fields
from octavo.models.registry import register
from octavo.models.rope_scaling import MAX_THETA, gguf_linear_factor, rope_settings
from octavo.models.sizes import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCAB,
    MAX_WIDTH,
    as_float32,
    check_head_sizes,
    decoder_shapes,
    heads_of,
    kv_heads_of,
    vocab_size_of,
)
from octavo.weights.checkpoint import WeightTensor
from octavo.weights.names import ROPE_FREQS

_MISTRAL_WINDOW = 4096  # what its config.json means when it names no sliding_window


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and options. vocab_size: rows of the embedding, which may exceed the tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_eps: float  # rounded to float32, as GGUF stores it
    rope: RopeConfig
    max_position_embeddings: int
    tie_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    window: int = 0  # tokens a query sees; 0: all
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "LlamaConfig":
        """From config.json. ModelFileError names the key that is wrong or not built."""
        hf = Fields(values)
        if hf.text("hidden_act", "silu") != "silu":
            raise hf.wrong("hidden_act", "silu: no other activation is built for this family")
        if hf.has("quantization_config"):
            raise ModelFileError("quantization_config is set; quantised folders are not built yet")
        if hf.number("partial_rotary_factor", 1.0, low=0, high=1) != 1:
            raise hf.wrong("partial_rotary_factor", "1 in this family")
        vocab_size = hf.integer("vocab_size", high=MAX_VOCAB)
        hidden, heads, head_dim = heads_of(hf, "hidden_size", "num_attention_heads", "head_dim")
        theta, factors = rope_settings(hf, head_dim)
        bias = hf.boolean("attention_bias", False)
        is_mistral = hf.text("model_type", "llama") == "mistral"
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=hf.integer("intermediate_size", high=MAX_WIDTH),
            num_layers=hf.integer("num_hidden_layers", high=MAX_LAYERS),
            num_heads=heads,
            num_kv_heads=kv_heads_of(hf, "num_key_value_heads", heads),
            head_dim=head_dim,
            rms_eps=as_float32(hf.number("rms_norm_eps", 1e-6, low=0, high=1)),
            rope=RopeConfig(head_dim, head_dim, theta, factors),
            max_position_embeddings=hf.integer("max_position_embeddings", 2048, high=MAX_POSITIONS),
            tie_embeddings=hf.boolean("tie_word_embeddings", False),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=hf.boolean("mlp_bias", False),
            window=_mistral_window(values) if is_mistral else 0,
            eos_token_ids=hf.token_ids("eos_token_id", vocab_size),
        )

    @classmethod
    def from_gguf(
        cls, metadata: Mapping[str, Any], tensors: Mapping[str, WeightTensor]
    ) -> "LlamaConfig":
        """From GGUF metadata, and from which tensors there are. ModelFileError names the key."""
        gguf = Fields.within(metadata, "llama.")
        tokens = Fields.within(metadata, "tokenizer.ggml.")
        if gguf.has("expert_count") and gguf.integer("expert_count", low=0, high=MAX_LAYERS):
            raise gguf.wrong("expert_count", "0: mixtures of experts are not built yet")
        vocab_size = vocab_size_of(tensors)
        hidden, heads, head_dim = heads_of(
            gguf, "embedding_length", "attention.head_count", "attention.key_length"
        )
        check_head_sizes(gguf, head_dim)
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=gguf.integer("feed_forward_length", high=MAX_WIDTH),
            num_layers=gguf.integer("block_count", high=MAX_LAYERS),
            num_heads=heads,
            num_kv_heads=kv_heads_of(gguf, "attention.head_count_kv", heads),
            head_dim=head_dim,
            rms_eps=as_float32(gguf.number("attention.layer_norm_rms_epsilon", low=0, high=1)),
            rope=_gguf_rope(gguf, head_dim, tensors.get(ROPE_FREQS)),
            max_position_embeddings=gguf.integer("context_length", high=MAX_POSITIONS),
            tie_embeddings="lm_head.weight" not in tensors,
            qkv_bias="model.layers.0.self_attn.q_proj.bias" in tensors,
            o_bias="model.layers.0.self_attn.o_proj.bias" in tensors,
            mlp_bias="model.layers.0.mlp.up_proj.bias" in tensors,
            window=gguf.integer("attention.sliding_window", 0, low=0, high=MAX_POSITIONS),
            eos_token_ids=tokens.token_ids("eos_token_id", vocab_size),
        )

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """End of a module's name -> shape of its weight, [out, in]."""
        return decoder_shapes(self, ("input_layernorm", "post_attention_layernorm", "norm"))

    def ignored_tensors(self) -> tuple[str, ...]:
        """Prefixes or patterns of tensors that may be present and are not read."""
        head = ("lm_head.",) if self.tie_embeddings else ()
        return (ROPE_FREQS, "*.rotary_emb.inv_freq", *head)


@register("LlamaForCausalLM", "MistralForCausalLM", gguf=("llama",), config=LlamaConfig)
def llama(g: Graph, c: LlamaConfig) -> None:
    """Pre-norm decoder with grouped attention and a gated MLP (Touvron et al. 2023)."""
    x = g.embed("model.embed_tokens")  # [T, H]
    for i in range(c.num_layers):
        p = f"model.layers.{i}."
        h = g.rms_norm(x, p + "input_layernorm", c.rms_eps)
        q, k, v = g.linears(h, p + "self_attn.", ("q_proj", "k_proj", "v_proj"), bias=c.qkv_bias)
        q, k = g.rope(q, c.rope), g.rope(k, c.rope)
        a = g.attention(q, k, v, layer=i, scale=c.head_dim**-0.5, window=c.window)
        x = g.add(x, g.linear(a, p + "self_attn.o_proj", bias=c.o_bias, shard="in"))
        h = g.rms_norm(x, p + "post_attention_layernorm", c.rms_eps)
        gate, up = g.linears(h, p + "mlp.", ("gate_proj", "up_proj"), bias=c.mlp_bias)
        m = g.silu_mul(gate, up)
        x = g.add(x, g.linear(m, p + "mlp.down_proj", bias=c.mlp_bias, shard="in"))
    g.logits(g.rms_norm(x, "model.norm", c.rms_eps), head="lm_head", tied=c.tie_embeddings)


def _mistral_window(values: Mapping[str, Any]) -> int:
    if "sliding_window" in values and values["sliding_window"] is None:
        return 0
    return Fields(values).integer("sliding_window", _MISTRAL_WINDOW, high=MAX_POSITIONS)


def _gguf_rope(gguf: Fields, head_dim: int, freqs: WeightTensor | None) -> RopeConfig:
    theta = gguf.number("rope.freq_base", 10000.0, low=1.0, high=MAX_THETA)
    factors = np.full(head_dim // 2, gguf_linear_factor(gguf))
    if freqs is not None:
        if freqs.shape != factors.shape:
            raise ModelFileError(
                f"tensor {ROPE_FREQS} is {list(freqs.shape)}; it must be [{head_dim // 2}]"
            )
        factors = factors * freqs.float32()
        if not np.all((factors > 0) & np.isfinite(factors)):
            raise ModelFileError(f"tensor {ROPE_FREQS} must hold positive numbers")
    scaled = bool(np.any(factors != 1))
    return RopeConfig(head_dim, head_dim, theta, tuple(factors.tolist()) if scaled else ())
