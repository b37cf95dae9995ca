"""What a model's files say of it: sizes, types, vocabulary, template, memory. Nothing is loaded.

All of it is strangers' text and numbers: whoever shows it must escape it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from octavo.errors import ConfigError, ModelFileError
from octavo.weights.mapped import StoredTensor

PROCESS_BYTES = 90_000_000
TOKEN_BYTES = 500
"""What a server needs beside weights and cache: so much, and for each token of its vocabulary so
much. Measured at ready: 66 MB with 49,152 tokens, 168 MB with 262,144."""

# What is shown -> key of GGUF behind the architecture, key of config.json.
SIZES: Mapping[str, tuple[str, str]] = {
    "layers": ("block_count", "num_hidden_layers"),
    "hidden": ("embedding_length", "hidden_size"),
    "intermediate": ("feed_forward_length", "intermediate_size"),
    "heads": ("attention.head_count", "num_attention_heads"),
    "kv_heads": ("attention.head_count_kv", "num_key_value_heads"),
    "head_dim": ("attention.key_length", "head_dim"),
    "vocab": ("vocab_size", "vocab_size"),
    "context": ("context_length", "max_position_embeddings"),
    "experts": ("expert_count", "num_local_experts"),
}
_KV_ITEM_BYTES = 2  # float16, which --kv-cache-dtype auto means


class TypeShare(NamedTuple):
    """Tensors of one type together."""

    type: str
    tensors: int
    parameters: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """kind: of the tokenizer, in words. The texts of the special tokens are strangers'."""

    kind: str
    size: int
    bos: str | None
    bos_id: int | None
    eos: str | None
    eos_id: int | None
    special: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that serving takes. kv_token_bytes: of the cache for each token; None: not known.

    process_bytes: what is neither weights nor cache, about.
    """

    weights_bytes: int
    kv_token_bytes: int | None
    process_bytes: int

    def total_bytes(self, tokens: int) -> int | None:
        """With so many tokens in the cache."""
        if self.kv_token_bytes is None:
            return None
        return self.process_bytes + self.weights_bytes + tokens * self.kv_token_bytes


@dataclass(frozen=True, slots=True)
class Description:
    """A model as its files have it. refusal: why it cannot be served; None: it can.

    sizes: by the names of SIZES, those that are told. faults: what else could not be read, by part.
    """

    path: Path
    format: Literal["gguf", "safetensors"]
    architecture: str
    title: str | None
    refusal: str | None
    sizes: Mapping[str, int]
    tensors: tuple[StoredTensor, ...]
    template: str | None
    vocabulary: Vocabulary | None
    memory: Memory
    faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(map(_elements, self.tensors))

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors as they are stored."""
        return sum(tensor.data.nbytes for tensor in self.tensors)

    @property
    def types(self) -> tuple[TypeShare, ...]:
        """By type, the largest share first."""
        shares: dict[str, TypeShare] = {}
        for tensor in self.tensors:
            kind = tensor.type.value
            _, count, parameters, size = shares.get(kind, TypeShare(kind, 0, 0, 0))
            share = TypeShare(
                kind, count + 1, parameters + _elements(tensor), size + tensor.data.nbytes
            )
            shares[kind] = share
        return tuple(sorted(shares.values(), key=lambda share: -share.size_bytes))


def describe_model(path: Path) -> Description:
    """Describe a model folder or GGUF file, of whatever architecture.

    Raises ModelFileError for files that cannot be read, or that lie.
    """
    found = _read_folder(path) if path.is_dir() else _read_gguf(path)
    refusal, memory = _serving(path, found)
    faults: dict[str, str] = {}
    return Description(
        path=path,
        format=found.format,
        architecture=found.architecture,
        title=found.title,
        refusal=refusal,
        sizes=found.sizes,
        tensors=found.tensors,
        template=_template(path, found.metadata, faults),
        vocabulary=_vocabulary(path, faults),
        memory=memory,
        faults=faults,
    )


# -------------------------------------------------------------------------------- what files say


@dataclass(frozen=True, slots=True)
class _Found:
    format: Literal["gguf", "safetensors"]
    architecture: str
    title: str | None
    sizes: dict[str, int]
    tensors: tuple[StoredTensor, ...]
    metadata: Mapping[str, Any]


def _read_gguf(path: Path) -> _Found:
    from octavo.weights.gguf import read_gguf

    file = read_gguf(path)
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise file.files[0].broken("'general.architecture' is missing or no string")
    sizes = _sizes({n: metadata.get(f"{architecture}.{keys[0]}") for n, keys in SIZES.items()})
    tokens = metadata.get("tokenizer.ggml.tokens")
    if "vocab" not in sizes and isinstance(tokens, list):
        sizes["vocab"] = len(tokens)
    title = metadata.get("general.name")
    return _Found(
        "gguf",
        architecture,
        title if isinstance(title, str) else None,
        sizes,
        tuple(file.tensors.values()),
        metadata,
    )


def _read_folder(folder: Path) -> _Found:
    from octavo.weights.checkpoint import read_config
    from octavo.weights.safetensors import read_folder

    folder = folder.resolve()
    config = read_config(folder)
    tensors, _ = read_folder(folder)
    names = config.get("architectures")
    architecture = names[0] if isinstance(names, list) and names else None
    inner = config.get("text_config")  # of models that also see or hear
    values = {**config, **inner} if isinstance(inner, dict) else config
    return _Found(
        "safetensors",
        architecture if isinstance(architecture, str) else "unknown",
        None,
        _sizes({name: values.get(keys[1]) for name, keys in SIZES.items()}),
        tuple(tensors.values()),
        {},
    )


def _sizes(values: Mapping[str, Any]) -> dict[str, int]:
    """Those that are numbers of a sensible size. Lists (a number for each layer): the largest."""
    sizes = {}
    for name, value in values.items():
        if isinstance(value, list) and value and all(type(item) is int for item in value):
            value = max(value)
        if type(value) is int and 0 < value < 1 << 40:
            sizes[name] = value
    if "head_dim" not in sizes and {"hidden", "heads"} <= sizes.keys():
        sizes["head_dim"] = sizes["hidden"] // sizes["heads"]
    if "kv_heads" not in sizes and "heads" in sizes:
        sizes["kv_heads"] = sizes["heads"]
    return sizes


def _elements(tensor: StoredTensor) -> int:
    return math.prod(tensor.shape)


def _template(path: Path, metadata: Mapping[str, Any], faults: dict[str, str]) -> str | None:
    from octavo.text.template import find_template

    try:
        return find_template(path, metadata=metadata)
    except ModelFileError as error:
        faults["template"] = str(error)
        return None


def _vocabulary(path: Path, faults: dict[str, str]) -> Vocabulary | None:
    from octavo.text.opening import open_tokenizer

    try:
        found = open_tokenizer(path)
    except ConfigError as error:
        faults["vocabulary"] = str(error)
        return None
    return Vocabulary(
        kind=found.kind,
        size=found.vocab_size,
        bos=found.bos_token,
        bos_id=found.bos_token_id,
        eos=found.eos_token,
        eos_id=found.eos_token_id,
        special=len(found.special_ids),
    )


# ------------------------------------------------------------------------------ what serving takes


def _serving(path: Path, found: _Found) -> tuple[str | None, Memory]:
    """Why it cannot be served, if so, and the memory: exact for what can be, else by the sizes."""
    from octavo.backends.native import cache_groups
    from octavo.backends.native_program import packed_bytes
    from octavo.models.registry import build
    from octavo.weights.checkpoint import open_checkpoint

    process_bytes = PROCESS_BYTES + TOKEN_BYTES * found.sizes.get("vocab", 0)
    try:
        with open_checkpoint(path) as checkpoint:
            program = build(checkpoint).program
            groups = cache_groups(program, "auto")
            return None, Memory(
                packed_bytes(program, checkpoint),
                sum(group.bytes_per_token for group in groups),
                process_bytes,
            )
    except ConfigError as error:
        return str(error), Memory(
            sum(tensor.data.nbytes for tensor in found.tensors),
            _kv_token_bytes(found.sizes),
            process_bytes,
        )


def _kv_token_bytes(sizes: Mapping[str, int]) -> int | None:
    needed: Iterable[str] = ("layers", "kv_heads", "head_dim")
    if not all(name in sizes for name in needed):
        return None
    return 2 * _KV_ITEM_BYTES * math.prod(sizes[name] for name in needed)
