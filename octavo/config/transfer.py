"""`--kv-transfer-config` and `--offload-config`: from JSON to checked, frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from octavo.config.fields import Converter, integer, text
from octavo.config.json_values import check_keys, choice_value, json_object, kind_of, text_value
from octavo.errors import ConfigError

TRANSFER = "--kv-transfer-config"
OFFLOAD = "--offload-config"
ROLES = ("kv_producer", "kv_consumer", "kv_both")
FAILURE_POLICIES = ("fail", "recompute")
KEYS = ("kv_connector", "kv_role", "engine_id", "kv_load_failure_policy")
EXTRA = "kv_connector_extra_config"
FOREIGN_KEYS = (
    "kv_buffer_device",
    "kv_buffer_size",
    "kv_rank",
    "kv_parallel_size",
    "kv_ip",
    "kv_port",
    "kv_connector_module_path",
)


def _truth(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError(f"must be true or false, not {value!r}")
    return value == "true"


def _word(*allowed: str) -> Converter:
    def convert(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    return convert


CONNECTORS: Mapping[str, Mapping[str, Converter]] = {
    "LMCacheConnector": {
        "host": text,
        "port": integer(1, 65535),
        "hash_algo": _word("blake3", "vllm"),
        "chunk_tokens": integer(1),
        "model_name": text,
        "world_size": integer(1),
        "worker_id": integer(0),
        "offload_prompt_only": _truth,
        "save_unfull_chunk": _truth,
        "none_hash_seed": text,
        "num_layers": integer(1),
        "hidden_dim": integer(1),
    },
    "OffloadingConnector": {
        "root_dir": text,
        "num_cpu_blocks": integer(1),
        "cpu_bytes_to_use": integer(1),
        "fs_capacity_bytes": integer(0),
        "eviction_policy": _word("lru", "arc"),
        "group_idx": integer(0),
        "offload_block_tokens": integer(1),
        "offload_prompt_only": _truth,
    },
}  # connector -> its keys under kv_connector_extra_config


@dataclass(frozen=True, slots=True)
class TransferConfig:
    """A checked `--kv-transfer-config`. extra: typed values of the connector, only those given."""

    connector: str
    role: str
    engine_id: str | None = None
    load_failure_policy: str = "fail"
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def transfer_config(value: str, block_size: int) -> TransferConfig | None:
    """Check the JSON text. None when it names no connector. Raises ConfigError with the key."""
    given = json_object(TRANSFER, value)
    check_keys(TRANSFER, given, (*KEYS, EXTRA), FOREIGN_KEYS)
    connector = text_value(TRANSFER, given, "kv_connector")
    role = choice_value(TRANSFER, given, "kv_role", ROLES)
    engine_id = text_value(TRANSFER, given, "engine_id")
    policy = choice_value(TRANSFER, given, "kv_load_failure_policy", FAILURE_POLICIES)
    scalars = _scalars(given.get(EXTRA, {}))
    if connector is None:
        if scalars:
            raise ConfigError(f"{TRANSFER}: {EXTRA!r} needs 'kv_connector'")
        return None
    if connector not in CONNECTORS:
        raise ConfigError(
            f"{TRANSFER}: unknown connector {connector!r}; registered: {', '.join(CONNECTORS)}"
        )
    if role is None:
        raise ConfigError(f"{TRANSFER}: 'kv_role' is required, one of {', '.join(ROLES)}")
    extra = _typed(connector, scalars)
    if connector == "OffloadingConnector":
        _check_offloading(extra, block_size)
    return TransferConfig(connector, role, engine_id, policy or "fail", MappingProxyType(extra))


def _scalars(value: Any) -> dict[str, str]:
    """A flat JSON map as text, as connectors of other servers get it."""
    if not isinstance(value, dict):
        raise ConfigError(f"{TRANSFER}: {EXTRA!r} must be an object, not {kind_of(value)}")
    made = {}
    for key, item in value.items():
        if isinstance(item, bool):
            made[key] = "true" if item else "false"
        elif isinstance(item, str | int | float):
            made[key] = str(item)
        else:
            raise ConfigError(
                f"{TRANSFER}: {EXTRA}.{key} must be a text, a number or a boolean, "
                f"not {kind_of(item)}"
            )
    return made


def _typed(connector: str, scalars: Mapping[str, str]) -> dict[str, Any]:
    converters = CONNECTORS[connector]
    check_keys(f"{TRANSFER}: {EXTRA} of {connector}", scalars, converters)
    made = {}
    for key, item in scalars.items():
        try:
            made[key] = converters[key](item)
        except ValueError as error:
            raise ConfigError(f"{TRANSFER}: {EXTRA}.{key} {error}") from None
    return made


def _check_offloading(extra: Mapping[str, Any], block_size: int) -> None:
    if "root_dir" not in extra:
        raise ConfigError(f"{TRANSFER}: OffloadingConnector needs 'root_dir' in {EXTRA}")
    if ("num_cpu_blocks" in extra) == ("cpu_bytes_to_use" in extra):
        raise ConfigError(
            f"{TRANSFER}: OffloadingConnector needs one of 'num_cpu_blocks' and "
            f"'cpu_bytes_to_use' in {EXTRA}"
        )
    if extra.get("offload_block_tokens", block_size) % block_size:
        raise ConfigError(
            f"{TRANSFER}: {EXTRA}.offload_block_tokens must be a multiple of --block-size "
            f"({block_size}), not {extra['offload_block_tokens']}"
        )


def check_offload_config(value: str) -> None:
    """Check the form of `--offload-config`. Raises ConfigError with the key."""
    given = json_object(OFFLOAD, value)
    check_keys(OFFLOAD, given, ("offload_backend", "uva", "prefetch"))
    choice_value(OFFLOAD, given, "offload_backend", ("auto", "uva", "prefetch"))
    for key in ("uva", "prefetch"):
        if not isinstance(given.get(key, {}), dict):
            raise ConfigError(f"{OFFLOAD}: {key!r} must be an object, not {kind_of(given[key])}")
