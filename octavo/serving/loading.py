"""From a configuration to everything that serving a model needs.

`load_served` loads real models; doubles pass a `load` of their own to `api.lifecycle.serve`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.config import Config
from octavo.errors import ModelFileError
from octavo.serving.params import BOUNDS
from octavo.weights.quickstart import SMOLLM2

if TYPE_CHECKING:
    from octavo.backends.base import Backend
    from octavo.models.registry import Model
    from octavo.text.template import ChatTemplate
    from octavo.text.tokenizer import Tokenizer
    from octavo.weights.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

# Sampling values that generation_config.json may set for requests that say nothing.
DEFAULTS_READ = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded model under its name.

    model_len: the longest context that the model knows, in tokens; the engine may fit it down.
    vocab_size: ids that prompts may hold and the sampler may draw. defaults: sampling values for
    requests that give none. created: Unix seconds.
    """

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate
    backend: Backend
    model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    defaults: Mapping[str, float] = field(default_factory=dict)
    created: int = field(default_factory=lambda: int(time.time()))


def load_served(config: Config) -> Served:
    """Load the model that the flags name. Raises ConfigError with one sentence for people."""
    from octavo.models.registry import build, check_config
    from octavo.weights.checkpoint import open_checkpoint
    from octavo.weights.resolve import resolve_model

    with open_checkpoint(resolve_model(config.model.model, check=check_config)) as checkpoint:
        model = build(checkpoint)
        vocab_size = _vocab_size(checkpoint, model)
        # The native backend now begins to load, in a thread that needs no Python.
        backend = make_backend(config, model, checkpoint, vocab_size) if vocab_size else None
        tokenizer = _tokenizer(config, checkpoint)
        vocab_size = _checked_vocab_size(tokenizer, model)
        return Served(
            name=config.served_name,
            tokenizer=tokenizer,
            template=_template(config, checkpoint, tokenizer),
            backend=backend or make_backend(config, model, checkpoint, vocab_size),
            model_len=model.config.max_position_embeddings,
            vocab_size=vocab_size,
            eos_token_ids=_eos_token_ids(checkpoint, model, tokenizer, vocab_size),
            defaults=_defaults(config, checkpoint),
        )


def _vocab_size(checkpoint: Checkpoint, model: Model) -> int:
    """Tokens of the tokenizer that a GGUF file will make; 0 when only making it tells."""
    tokens = checkpoint.metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else 0
    return count if count <= model.config.vocab_size else 0


def _checked_vocab_size(tokenizer: Tokenizer, model: Model) -> int:
    """Ids that have both a text and an embedding. Embeddings may have more rows, to be even."""
    rows = model.config.vocab_size
    if tokenizer.vocab_size > rows:
        raise ModelFileError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, but the model has embeddings for "
            f"{rows}; use the tokenizer that belongs to the model"
        )
    return tokenizer.vocab_size


def make_backend(config: Config, model: Model, checkpoint: Checkpoint, vocab_size: int) -> Backend:
    """What runs the model; `auto` is the native backend."""
    kv_dtype = config.cache.kv_cache_dtype
    if config.model.backend == "reference":
        from octavo.backends.reference import ReferenceBackend

        return ReferenceBackend(model.program, checkpoint, vocab_size=vocab_size, kv_dtype=kv_dtype)
    from octavo.backends.native import NativeBackend

    return NativeBackend(
        model.program,
        checkpoint,
        vocab_size=vocab_size,
        kv_dtype=kv_dtype,
        threads=config.model.threads,
    )


def _tokenizer(config: Config, checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.format == "gguf":
        from octavo.text.gguf_tokenizer import tokenizer_from_gguf

        return tokenizer_from_gguf(checkpoint.metadata, checkpoint.path.name)
    from octavo.text.tokenizer import load_tokenizer

    return load_tokenizer(checkpoint.path, _tokenizer_config(config))


def _template(config: Config, checkpoint: Checkpoint, tokenizer: Tokenizer) -> ChatTemplate:
    from octavo.text.template import ChatTemplate, find_template

    source = find_template(
        checkpoint.path,
        tokenizer_config=_tokenizer_config(config),
        metadata=checkpoint.metadata,
    )
    return ChatTemplate(
        source,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        special_tokens=tokenizer.special_tokens,
    )


def _tokenizer_config(config: Config) -> Path | None:
    given = config.model.tokenizer_config
    return None if given is None else Path(given)


def _eos_token_ids(
    checkpoint: Checkpoint, model: Model, tokenizer: Tokenizer, vocab_size: int
) -> frozenset[int]:
    """Every id that ends an answer: of the config, the tokenizer and generation_config.json."""
    from octavo.text.end_tokens import further_ends

    found: set[int] = set(model.config.eos_token_ids)
    if checkpoint.format == "gguf":
        found |= further_ends(checkpoint.metadata, tokenizer)
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    further = checkpoint.generation_config.get("eos_token_id")
    for token_id in further if isinstance(further, list) else [further]:
        if isinstance(token_id, int) and not isinstance(token_id, bool):
            found.add(token_id)
    return frozenset(token_id for token_id in found if 0 <= token_id < vocab_size)


def _defaults(config: Config, checkpoint: Checkpoint) -> dict[str, float]:
    if config.model.model == SMOLLM2.name:
        return sampling_defaults(SMOLLM2.sampling, f"the card of {SMOLLM2.name}")
    return sampling_defaults(checkpoint.generation_config)


def sampling_defaults(
    values: Mapping[str, Any], source: str = "generation_config.json"
) -> dict[str, float]:
    """The values that requests may also set; wrong ones are left out."""
    defaults: dict[str, float] = {}
    for name in DEFAULTS_READ:
        value = values.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and BOUNDS[name].holds(value):
            defaults[name] = value
        else:
            logger.warning("%s: %s is out of range and not used", source, name)
    if defaults:
        logger.info("sampling defaults of %s: %s", source, defaults)
    return defaults
