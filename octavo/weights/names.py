"""Maps GGUF tensor names to Hugging Face names, both ways, by rules kept as data.

A rule pairs the stems of a name without its `.weight` or `.bias`; `{}` stands for the block number.
A name that no rule covers stays as it is, so that the check at loading reports it as unexpected.
`rope_freqs.weight` (divisors of the rope frequencies, in llama3-scaled files) keeps its GGUF name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError
from octavo.weights.mapped import shown

ROPE_FREQS = "rope_freqs.weight"
"""[rope_dim / 2] float32: the rope frequency of each pair is divided by it."""

_BLOCK = re.compile(r"(blk|model\.layers)\.(0|[1-9][0-9]{0,8})\.")


@dataclass(frozen=True, slots=True)
class InterleavedHeads:
    """Rows of an attention projection whose rope pairs are neighbours (2i, 2i + 1).

    llama.cpp's converter reorders the rows of Llama's q and k so; Hugging Face's rope pairs
    (i, i + head_dim / 2).
    """

    heads: int

    def row_order(self, rows: int) -> NDArray[np.intp]:
        """[rows]: which stored row is each row in Hugging Face order."""
        pairs = np.arange(rows).reshape(self.heads, -1, 2)
        return pairs.swapaxes(1, 2).reshape(-1)


@dataclass(frozen=True, slots=True)
class PlusOne:
    """Stored as the weight + 1.

    Gemma's norms multiply by weight + 1; llama.cpp's converter stores that sum.
    """


Transform = InterleavedHeads | PlusOne
"""How stored values differ from Hugging Face's."""


@dataclass(frozen=True, slots=True)
class NameRules:
    """Rules of one GGUF architecture.

    stems: GGUF stem -> Hugging Face stem. interleaved: GGUF stem of a projection stored as
    InterleavedHeads -> the metadata keys (without the architecture) that hold its head count, the
    first that is present counts. plus_one: GGUF stems of what is stored as PlusOne.
    """

    stems: Mapping[str, str]
    interleaved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plus_one: frozenset[str] = frozenset()


_DENSE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.attn_q": "model.layers.{}.self_attn.q_proj",
    "blk.{}.attn_k": "model.layers.{}.self_attn.k_proj",
    "blk.{}.attn_v": "model.layers.{}.self_attn.v_proj",
    "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
    "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_gate": "model.layers.{}.mlp.gate_proj",
    "blk.{}.ffn_up": "model.layers.{}.mlp.up_proj",
    "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
}
_QK_NORM = {
    "blk.{}.attn_q_norm": "model.layers.{}.self_attn.q_norm",
    "blk.{}.attn_k_norm": "model.layers.{}.self_attn.k_norm",
}
_LLAMA_ROPE = {
    "blk.{}.attn_q": ("attention.head_count",),
    "blk.{}.attn_k": ("attention.head_count_kv", "attention.head_count"),
}
_GEMMA3 = {
    "blk.{}.post_attention_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
    "blk.{}.post_ffw_norm": "model.layers.{}.post_feedforward_layernorm",
}
_GEMMA_NORMS = frozenset(
    ["output_norm", "blk.{}.attn_norm", "blk.{}.attn_q_norm", "blk.{}.attn_k_norm", *_GEMMA3]
)

RULES: Mapping[str, NameRules] = {
    "gemma3": NameRules(_DENSE | _QK_NORM | _GEMMA3, plus_one=_GEMMA_NORMS),
    "llama": NameRules(_DENSE, _LLAMA_ROPE),
}
"""GGUF `general.architecture` -> rules."""


def to_hugging_face(rules: NameRules, name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    return _rename(rules.stems, name)


def to_gguf(rules: NameRules, name: str) -> str:
    """The inverse of `to_hugging_face`."""
    return _rename({new: old for old, new in rules.stems.items()}, name)


def transform(
    rules: NameRules, name: str, rows: int, architecture: str, metadata: Mapping[str, Any]
) -> Transform | None:
    """What must be undone in the stored GGUF tensor `name` of `rows` rows; None: nothing.

    Raises ModelFileError (without the file's name) when the head count cannot be.
    """
    stem, _ = _stem(name)
    if stem in rules.plus_one:
        return PlusOne()
    keys = [f"{architecture}.{key}" for key in rules.interleaved.get(stem, ())]
    if not keys:
        return None
    key = next((key for key in keys if key in metadata), keys[-1])
    heads = metadata.get(key)
    if type(heads) is not int or heads <= 0:
        raise ModelFileError(f"{key} must be a positive number")
    if rows % (2 * heads):
        raise ModelFileError(
            f"{key} is {heads}, which does not cut the {rows} rows of {shown(name)} "
            f"into heads of an even size"
        )
    return InterleavedHeads(heads)


def _stem(name: str) -> tuple[str, str]:
    """`blk.3.attn_q.weight` -> (`blk.{}.attn_q`, `3`)."""
    stem = name.rpartition(".")[0]
    if "{" in stem:  # braces stand for the number in rules only
        return "", ""
    block = _BLOCK.match(stem)
    if block is None:
        return stem, ""
    return f"{block[1]}.{{}}.{stem[block.end() :]}", block[2]


def _rename(stems: Mapping[str, str], name: str) -> str:
    stem, block = _stem(name)
    new = stems.get(stem)
    if new is None:
        return name
    return f"{new.replace('{}', block)}.{name.rpartition('.')[2]}"
