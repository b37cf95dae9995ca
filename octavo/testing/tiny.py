"""Writes tiny random checkpoints, as a hub folder or a GGUF file, with clear-cut logits: Llama's.

`tiny_gemma.py` has Gemma's; what families share is here.

Equal shapes and seeds give equal weights in both forms (before encoding), so that the two ways of
loading can be compared.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from octavo.testing import tiny_tokenizer
from octavo.testing.model_files import write_gguf, write_safetensors
from octavo.testing.quantise import (
    Encoded,
    encode,
    quantise_q4_0,
    quantise_q4_1,
    quantise_q8_0,
)
from octavo.weights import names
from octavo.weights.encodings import TensorType

__all__ = [
    "Encoded",
    "TinyLlama",
    "encode",
    "quantise_q4_0",
    "quantise_q4_1",
    "quantise_q8_0",
    "tiny_llama",
    "write_gguf",
    "write_model",
    "write_safetensors",
]

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TinyLlama:
    """The shape of a tiny model. Sizes in elements.

    head_dim None: hidden / heads. vocab: rows of the embedding, at least the tokenizer's. context:
    tokens. rope_scaling: as in config.json, of `rope_type` linear or llama3. template: the chat
    template; None: none.
    """

    seed: int = 0
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    layers: int = 2
    intermediate: int = 128
    vocab: int = tiny_tokenizer.VOCAB_SIZE
    tie: bool = False
    context: int = 2048
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    template: str | None = field(default=tiny_tokenizer.CHATML, repr=False)

    gguf: ClassVar[str] = "llama"  # general.architecture
    norm_offset: ClassVar[float] = 0.0  # added to a norm's weights, to about 1 together

    @property
    def width(self) -> int:
        """Elements of one head."""
        return self.head_dim or self.hidden // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name -> shape of every weight."""
        hidden, inner = self.hidden, self.intermediate
        query, key = self.heads * self.width, self.kv_heads * self.width
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, hidden)}
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            shapes |= {
                prefix + "input_layernorm.weight": (hidden,),
                prefix + "self_attn.q_proj.weight": (query, hidden),
                prefix + "self_attn.k_proj.weight": (key, hidden),
                prefix + "self_attn.v_proj.weight": (key, hidden),
                prefix + "self_attn.o_proj.weight": (hidden, query),
                prefix + "post_attention_layernorm.weight": (hidden,),
                prefix + "mlp.gate_proj.weight": (inner, hidden),
                prefix + "mlp.up_proj.weight": (inner, hidden),
                prefix + "mlp.down_proj.weight": (hidden, inner),
            }
        shapes["model.norm.weight"] = (hidden,)
        if not self.tie:
            shapes["lm_head.weight"] = (self.vocab, hidden)
        return shapes

    def weights(self) -> dict[str, Floats]:
        """Hugging Face name -> values.

        Normalised states have elements of about 1, so rows of standard deviation 2 / sqrt(hidden)
        give logits that spread over about -6..6; layers add more than the embedding holds, so that
        tied models do not just repeat their input.
        """
        random = np.random.default_rng(self.seed)
        weights = {}
        for name, shape in self.shapes().items():
            values = random.standard_normal(shape, np.float32)
            if len(shape) == 1:
                weights[name] = np.float32(1 - self.norm_offset) + np.float32(0.1) * values
            else:
                gain = 2 if name.startswith(("model.embed", "lm_head")) else 1
                gain = 3 if name.endswith("down_proj.weight") else gain
                weights[name] = values * np.float32(gain / math.sqrt(shape[1]))
        return weights

    def config(self, kind: TensorType) -> dict[str, Any]:
        """config.json of a folder whose matrices are of this type."""
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.width,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": self.rope_theta,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": self.tie,
            "bos_token_id": tiny_tokenizer.token_id(tiny_tokenizer.BOS),
            "eos_token_id": tiny_tokenizer.token_id(tiny_tokenizer.EOS),
            "torch_dtype": {"F16": "float16", "BF16": "bfloat16"}.get(kind.value, "float32"),
        }
        if self.rope_scaling is not None:
            config["rope_scaling"] = dict(self.rope_scaling)
        return config

    def gguf_metadata(self) -> dict[str, Any]:
        """The pairs of a GGUF file."""
        metadata: dict[str, Any] = {
            "general.architecture": "llama",
            "general.name": "tiny",
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.hidden,
            "llama.feed_forward_length": self.intermediate,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.dimension_count": self.width,
            "llama.rope.freq_base": self.rope_theta,
            "llama.vocab_size": self.vocab,
            **tiny_tokenizer.gguf_metadata(self.template, self.vocab),
        }
        if self.width * self.heads != self.hidden:
            metadata["llama.attention.key_length"] = self.width
            metadata["llama.attention.value_length"] = self.width
        return metadata


def tiny_llama(
    path: Path,
    *,
    format: Literal["folder", "gguf"] = "folder",  # noqa: A002 - the word for it
    weight_type: str = "F32",
    shards: int = 1,
    **shape: Any,
) -> Path:
    """Write the model `TinyLlama(**shape)` and return `path`.

    weight_type: of the matrices: F32, F16 or BF16, and for GGUF each of `requantise.FILE_TYPES`
    (whose rows must be multiples of 32 elements, of 256 for the K types and IQ4_XS). Norms are F32
    in GGUF, as converters write them. shards: of the folder's safetensors.
    """
    return write_model(path, TinyLlama(**shape), format, weight_type, shards)


def write_model(
    path: Path,
    model: TinyLlama,
    format: Literal["folder", "gguf"] = "folder",  # noqa: A002 - the word for it
    weight_type: str = "F32",
    shards: int = 1,
) -> Path:
    """Write this model; parameters as of `tiny_llama`."""
    kind = TensorType[weight_type]
    if format == "gguf":
        return _write_gguf(path, model, kind)
    return _write_folder(path, model, kind, shards)


def _write_folder(folder: Path, model: TinyLlama, kind: TensorType, shards: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": model.config(kind),
        "generation_config.json": {"eos_token_id": tiny_tokenizer.token_id(tiny_tokenizer.EOS)},
        **tiny_tokenizer.folder_files(model.template),
    }
    tensors = {name: encode(values, kind) for name, values in model.weights().items()}
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
    else:
        weight_map: dict[str, str] = {}
        for index in range(shards):
            shard = f"model-{index + 1:05}-of-{shards:05}.safetensors"
            some = {name: tensors[name] for name in list(tensors)[index::shards]}
            write_safetensors(folder / shard, some)
            weight_map |= dict.fromkeys(some, shard)
        files["model.safetensors.index.json"] = {"metadata": {}, "weight_map": weight_map}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return folder


def _write_gguf(path: Path, model: TinyLlama, kind: TensorType) -> Path:
    metadata = model.gguf_metadata()
    rules = names.RULES[model.gguf]
    tensors = {}
    for name, values in model.weights().items():
        old = names.to_gguf(rules, name)
        transform = names.transform(rules, old, values.shape[0], model.gguf, metadata)
        stored = _as_stored(values, transform)
        tensors[old] = encode(stored, kind if values.ndim > 1 else TensorType.F32)
    scaling = model.rope_scaling or {}
    if scaling.get("rope_type") == "linear":
        metadata[f"{model.gguf}.rope.scaling.type"] = "linear"
        metadata[f"{model.gguf}.rope.scaling.factor"] = float(scaling["factor"])
    elif scaling:
        tensors[names.ROPE_FREQS] = encode(_llama3_divisors(model, scaling), TensorType.F32)
    return write_gguf(path, metadata, tensors)


def _as_stored(values: Floats, transform: names.Transform | None) -> Floats:
    if transform is None:
        return values
    if isinstance(transform, names.PlusOne):
        return values + np.float32(1)
    return values[np.argsort(transform.row_order(len(values)))]


def _llama3_divisors(model: TinyLlama, scaling: Mapping[str, Any]) -> Floats:
    """[width / 2]: what each rope frequency is divided by.

    Llama 3.1: wavelengths above context / low_freq_factor by `factor`, those below
    context / high_freq_factor by 1, between them by a blend of the two.
    """
    exponents = np.arange(0, model.width, 2, dtype=np.float64) / model.width
    turns = scaling["original_max_position_embeddings"] * model.rope_theta**-exponents / math.tau
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - blend) / scaling["factor"] + blend), np.float32)
