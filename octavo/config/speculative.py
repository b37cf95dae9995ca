"""`--speculative-config`: from JSON to a checked, frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.config.json_values import (
    check_keys,
    choice_value,
    count_value,
    json_object,
    text_value,
)
from octavo.errors import ConfigError

FLAG = "--speculative-config"
METHODS = ("ngram", "mtp", "dflash", "draft_model", "dspark")
DRAFT_METHODS = ("dflash", "draft_model", "dspark")  # those that load a second checkpoint
KEYS = (
    "method",
    "num_speculative_tokens",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "model",
    "draft_sample_method",
    "rejection_sample_method",
)
FOREIGN_METHODS = (
    "ngram_gpu",
    "medusa",
    "mlp_speculator",
    "suffix",
    "custom_class",
    "eagle",
    "eagle3",
    "extract_hidden_states",
)
FOREIGN_KEYS = (
    "draft_tensor_parallel_size",
    "quantization",
    "max_model_len",
    "revision",
    "code_revision",
    "enforce_eager",
    "moe_backend",
    "attention_backend",
    "kv_cache_dtype",
    "disable_padded_drafter_batch",
    "use_heterogeneous_vocab",
    "parallel_drafting",
    "num_speculative_tokens_per_batch_size",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "enable_adaptive_verification",
    "dspark_draft_topk",
)
DEFAULT_LOOKUP = 5


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """A checked `--speculative-config`.

    num_tokens: drafts per step; None (only `mtp`): as many as the checkpoint's head predicts.
    lookup_min, lookup_max: lengths of the suffix that `ngram` looks for.
    """

    method: str
    num_tokens: int | None
    lookup_min: int = DEFAULT_LOOKUP
    lookup_max: int = DEFAULT_LOOKUP
    model: str | None = None


def speculative_config(value: str) -> SpeculativeConfig:
    """Check the JSON text. Raises ConfigError naming the key or the method."""
    given = json_object(FLAG, value)
    check_keys(FLAG, given, KEYS, FOREIGN_KEYS)
    method = _method(given)
    tokens = count_value(FLAG, given, "num_speculative_tokens", 1)
    if tokens is None and method != "mtp":
        raise ConfigError(f"{FLAG}: method {method!r} needs 'num_speculative_tokens', 1 or more")
    lookup_min, lookup_max = _lookup(given, method)
    model = text_value(FLAG, given, "model")
    if model is None and method in DRAFT_METHODS:
        raise ConfigError(f"{FLAG}: method {method!r} needs 'model', the draft checkpoint")
    if model is not None and method not in DRAFT_METHODS:
        raise ConfigError(
            f"{FLAG}: 'model' is not for method {method!r}, only for {', '.join(DRAFT_METHODS)}"
        )
    choice_value(FLAG, given, "draft_sample_method", ("greedy",))
    choice_value(FLAG, given, "rejection_sample_method", ("standard",))
    return SpeculativeConfig(method, tokens, lookup_min, lookup_max, model)


def _method(given: Mapping[str, Any]) -> str:
    method = text_value(FLAG, given, "method")
    if method is None:
        raise ConfigError(f"{FLAG}: 'method' is required, one of {', '.join(METHODS)}")
    if method not in METHODS:
        known = "vLLM's method" if method in FOREIGN_METHODS else "unknown method"
        raise ConfigError(f"{FLAG}: {known} {method!r} is not here; allowed: {', '.join(METHODS)}")
    return method


def _lookup(given: Mapping[str, Any], method: str) -> tuple[int, int]:
    low = count_value(FLAG, given, "prompt_lookup_min", 1)
    high = count_value(FLAG, given, "prompt_lookup_max", 1)
    for key, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if value is not None and method != "ngram":
            raise ConfigError(f"{FLAG}: {key!r} is only for method 'ngram', not {method!r}")
    low, high = low or high or DEFAULT_LOOKUP, high or low or DEFAULT_LOOKUP
    if low > high:
        raise ConfigError(
            f"{FLAG}: 'prompt_lookup_min' ({low}) must not be above 'prompt_lookup_max' ({high})"
        )
    return low, high
