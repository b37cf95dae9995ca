"""Gemma 3, its text models: norms around each half of a layer, windows in five layers of six."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelFileError
from octavo.graph import Graph, RopeConfig, Value
from octavo.models.fields import Fields
from octavo.models.registry import register
from octavo.models.rope_scaling import MAX_THETA, gguf_linear_factor, rope_factors
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

_GLOBAL_THETA = 1e6
_LOCAL_THETA = 1e4
_PATTERN = 6  # every sixth layer sees the whole context
_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "norm",
)
_KINDS = ("sliding_attention", "full_attention")
_LAYERS_OF_27B = 62  # the one size whose scale is not that of its head; GGUF does not store it


@dataclass(frozen=True, slots=True)
class Gemma3Config:
    """Sizes and options. vocab_size: rows of the embedding, which may exceed the tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_eps: float  # rounded to float32, as GGUF stores it
    query_scale: float  # scores are queries times keys times this
    window: int  # tokens a query sees in a sliding layer
    sliding: tuple[bool, ...]  # of each layer: whether it has the window
    rope: RopeConfig
    sliding_rope: RopeConfig
    max_position_embeddings: int
    tie_embeddings: bool = True
    attention_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "Gemma3Config":
        """From config.json. ModelFileError names the key that is wrong or not built."""
        hf = Fields(values)
        if hf.text("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
            raise hf.wrong("hidden_activation", "gelu_pytorch_tanh in this family")
        if hf.has("quantization_config"):
            raise ModelFileError("quantization_config is set; quantised folders are not built yet")
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if hf.has(key):
                raise hf.wrong(key, "null: Gemma 3 caps no logits")
        if hf.boolean("use_bidirectional_attention", False):
            raise hf.wrong("use_bidirectional_attention", "false: text is generated causally")
        vocab_size = hf.integer("vocab_size", 262208, high=MAX_VOCAB)
        hidden, heads, head_dim = heads_of(hf, "hidden_size", "num_attention_heads", "head_dim")
        rope, sliding_rope = _hf_ropes(hf, head_dim)
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=hf.integer("intermediate_size", high=MAX_WIDTH),
            num_heads=heads,
            num_kv_heads=kv_heads_of(hf, "num_key_value_heads", heads),
            head_dim=head_dim,
            rms_eps=as_float32(hf.number("rms_norm_eps", 1e-6, low=0, high=1)),
            query_scale=hf.number("query_pre_attn_scalar", 256, low=1e-6, high=1e9) ** -0.5,
            window=hf.integer("sliding_window", 4096, high=MAX_POSITIONS),
            sliding=_hf_sliding(hf),
            rope=rope,
            sliding_rope=sliding_rope,
            max_position_embeddings=hf.integer(
                "max_position_embeddings", 131072, high=MAX_POSITIONS
            ),
            tie_embeddings=hf.boolean("tie_word_embeddings", True),
            attention_bias=hf.boolean("attention_bias", False),
            eos_token_ids=hf.token_ids("eos_token_id", vocab_size),
        )

    @classmethod
    def from_gguf(
        cls, metadata: Mapping[str, Any], tensors: Mapping[str, WeightTensor]
    ) -> "Gemma3Config":
        """From GGUF metadata, and from which tensors there are. ModelFileError names the key."""
        gguf = Fields.within(metadata, "gemma3.")
        tokens = Fields.within(metadata, "tokenizer.ggml.")
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if gguf.number(key, 0.0, low=0, high=1e9):
                raise gguf.wrong(key, "0: Gemma 3 caps no logits")
        if not gguf.boolean("attention.causal", True):
            raise gguf.wrong("attention.causal", "true: text is generated causally")
        if gguf.integer("expert_count", 0, low=0, high=MAX_LAYERS):
            raise gguf.wrong("expert_count", "0 in this family")
        vocab_size = vocab_size_of(tensors)
        hidden, heads, head_dim = heads_of(
            gguf, "embedding_length", "attention.head_count", "attention.key_length"
        )
        check_head_sizes(gguf, head_dim)
        layers = gguf.integer("block_count", high=MAX_LAYERS)
        window = gguf.integer("attention.sliding_window", 0, low=0, high=MAX_POSITIONS)
        pattern = gguf.integer("attention.sliding_window_pattern", _PATTERN, high=MAX_LAYERS)
        theta = gguf.number("rope.freq_base", _GLOBAL_THETA, low=1, high=MAX_THETA)
        local = gguf.number("rope.freq_base_swa", _LOCAL_THETA, low=1, high=MAX_THETA)
        factor = gguf_linear_factor(gguf)
        factors = (factor,) * (head_dim // 2) if factor != 1 else ()
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=gguf.integer("feed_forward_length", high=MAX_WIDTH),
            num_heads=heads,
            num_kv_heads=kv_heads_of(gguf, "attention.head_count_kv", heads),
            head_dim=head_dim,
            rms_eps=as_float32(gguf.number("attention.layer_norm_rms_epsilon", low=0, high=1)),
            query_scale=(hidden / heads if layers == _LAYERS_OF_27B else head_dim) ** -0.5,
            window=window,
            sliding=_pattern(layers, pattern) if window else (False,) * layers,
            rope=RopeConfig(head_dim, head_dim, theta, factors),
            sliding_rope=RopeConfig(head_dim, head_dim, local),
            max_position_embeddings=gguf.integer("context_length", high=MAX_POSITIONS),
            tie_embeddings="lm_head.weight" not in tensors,
            attention_bias="model.layers.0.self_attn.q_proj.bias" in tensors,
            eos_token_ids=tokens.token_ids("eos_token_id", vocab_size),
        )

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """End of a module's name -> shape of its weight, [out, in]."""
        heads = dict.fromkeys(("q_norm", "k_norm"), (self.head_dim,))
        return decoder_shapes(self, _NORMS) | heads

    def ignored_tensors(self) -> tuple[str, ...]:
        """Prefixes or patterns of tensors that may be present and are not read."""
        return ("lm_head.",) if self.tie_embeddings else ()


@register("Gemma3ForCausalLM", gguf=("gemma3",), config=Gemma3Config)
def gemma3(g: Graph, c: Gemma3Config) -> None:
    """Gemma 3 (Gemma Team 2025). Embeddings are scaled by the root of their width in float32."""

    def norm(x: Value, name: str, groups: int = 1) -> Value:
        return g.rms_norm(x, name, c.rms_eps, offset=1.0, groups=groups)

    x = g.embed("model.embed_tokens", scale=c.hidden_size**0.5)  # [T, H]
    for i, sliding in enumerate(c.sliding):
        p = f"model.layers.{i}."
        a, bias = p + "self_attn.", c.attention_bias
        rope, window = (c.sliding_rope, c.window) if sliding else (c.rope, 0)
        h = norm(x, p + "input_layernorm")
        q, k, v = g.linears(h, a, ("q_proj", "k_proj", "v_proj"), bias=bias)
        q = g.rope(norm(q, a + "q_norm", c.num_heads), rope)
        k = g.rope(norm(k, a + "k_norm", c.num_kv_heads), rope)
        h = g.attention(q, k, v, layer=i, scale=c.query_scale, window=window)
        h = g.linear(h, a + "o_proj", bias=bias, shard="in")
        x = g.add(x, norm(h, p + "post_attention_layernorm"))
        h = norm(x, p + "pre_feedforward_layernorm")
        h = g.gelu_mul(*g.linears(h, p + "mlp.", ("gate_proj", "up_proj")))
        h = g.linear(h, p + "mlp.down_proj", shard="in")
        x = g.add(x, norm(h, p + "post_feedforward_layernorm"))
    g.logits(norm(x, "model.norm"), head="lm_head", tied=c.tie_embeddings)


def _pattern(layers: int, period: int) -> tuple[bool, ...]:
    return tuple((i + 1) % period != 0 for i in range(layers))


def _hf_sliding(hf: Fields) -> tuple[bool, ...]:
    """By `layer_types`, or in older files by `sliding_window_pattern`."""
    layers = hf.integer("num_hidden_layers", high=MAX_LAYERS)
    if not hf.has("layer_types"):
        return _pattern(layers, hf.integer("sliding_window_pattern", _PATTERN, high=MAX_LAYERS))
    kinds = hf.texts("layer_types")
    if len(kinds) != layers or not set(kinds) <= set(_KINDS):
        raise hf.wrong("layer_types", f"{layers} times {' or '.join(_KINDS)}")
    return tuple(kind == _KINDS[0] for kind in kinds)


def _hf_ropes(hf: Fields, head_dim: int) -> tuple[RopeConfig, RopeConfig]:
    """Of full and of sliding layers.

    New files write `rope_parameters` by kind of layer; in old ones `rope_scaling` is of the full
    layers, and `rope_local_base_freq` the theta of the sliding ones.
    """
    by_kind = hf.mapping("rope_parameters")
    new = any(by_kind.has(kind) for kind in _KINDS)
    if hf.has("rope_parameters") and not new:
        raise hf.wrong("rope_parameters", f"an object for each of {' and '.join(_KINDS)}")
    full = by_kind.mapping("full_attention") if new else hf.mapping("rope_scaling")
    local = by_kind.mapping("sliding_attention")
    theta = _theta(full, hf, "rope_theta", _GLOBAL_THETA)
    local_theta = _theta(local, hf, "rope_local_base_freq", _LOCAL_THETA)
    return (
        RopeConfig(head_dim, head_dim, theta, rope_factors(full, theta, head_dim)),
        RopeConfig(head_dim, head_dim, local_theta, rope_factors(local, local_theta, head_dim)),
    )


def _theta(own: Fields, hf: Fields, key: str, default: float) -> float:
    """An object's own `rope_theta`, else what stands under `key` in the config."""
    if own.has("rope_theta"):
        return own.number("rope_theta", low=1, high=MAX_THETA)
    return hf.number(key, default, low=1, high=MAX_THETA)
