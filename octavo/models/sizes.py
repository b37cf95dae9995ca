"""Sizes that every decoder family has: read within bounds from settings, and what they shape."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from octavo.errors import ModelFileError
from octavo.models.fields import Fields
from octavo.weights.checkpoint import WeightTensor

# Bounds on what a stranger's file may claim, far above any known model.
MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_WIDTH = 1 << 20
MAX_VOCAB = 1 << 24
MAX_POSITIONS = (1 << 31) - 1  # positions are int32


def heads_of(fields: Fields, width: str, count: str, head: str) -> tuple[int, int, int]:
    """(hidden size, heads, head_dim), from the settings of these keys.

    A head is hidden / heads wide unless `head` tells.
    """
    hidden = fields.integer(width, high=MAX_WIDTH)
    heads = fields.integer(count, high=MAX_HEADS)
    if not fields.has(head) and hidden % heads:
        raise fields.wrong(count, f"a divisor of {fields.prefix}{width}, {hidden}")
    head_dim = fields.integer(head, hidden // heads, high=MAX_WIDTH)
    if head_dim == 0 or head_dim % 2 or heads * head_dim > MAX_WIDTH:
        at_fault = head if fields.has(head) else count
        raise fields.wrong(
            at_fault, f"such that heads are even in size and together <= {MAX_WIDTH}"
        )
    return hidden, heads, head_dim


def check_head_sizes(gguf: Fields, head_dim: int) -> None:
    """Refuse a GGUF file whose rope turns a part of a head, or whose values are of another size."""
    for key in ("rope.dimension_count", "attention.value_length"):
        if gguf.integer(key, head_dim, high=MAX_WIDTH) != head_dim:
            raise gguf.wrong(key, f"{head_dim}, the size of a head")


def kv_heads_of(fields: Fields, key: str, heads: int) -> int:
    """Heads of keys and values, a divisor of `heads`; as many when the key is absent."""
    kv_heads = fields.integer(key, heads, high=heads)
    if heads % kv_heads:
        raise fields.wrong(key, f"a divisor of the {heads} attention heads")
    return kv_heads


def vocab_size_of(tensors: Mapping[str, WeightTensor]) -> int:
    """Rows of a GGUF file's embedding."""
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError("tensor token_embd.weight is missing or no matrix")
    return embedding.shape[0]


class DecoderSizes(Protocol):
    """What the matrices of a decoder with gated MLPs are shaped by."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


def decoder_shapes(c: DecoderSizes, norms: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """End of a module's name -> shape of its weight, [out, in]; norms: the hidden state's."""
    hidden, inner = c.hidden_size, c.intermediate_size
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return {
        "embed_tokens": (c.vocab_size, hidden),
        "lm_head": (c.vocab_size, hidden),
        "q_proj": (q, hidden),
        "k_proj": (kv, hidden),
        "v_proj": (kv, hidden),
        "o_proj": (hidden, q),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
        **dict.fromkeys(norms, (hidden,)),
    }


def as_float32(value: float) -> float:
    """The nearest float32, as GGUF stores numbers: both forms of a model then agree."""
    return float(np.float32(value))
