"""Checks of a whole configuration, before any model is looked at.

First what the command line says wrongly (exit 2), then values that are no such thing (exit 1), and
only then features that exist in name but are not built in this version (exit 1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from octavo.config.config import Config
from octavo.config.feature_options import VIDEO_PARTITIONS
from octavo.config.media import check_media_limits
from octavo.config.names import REASONING_PARSERS, TOOL_PARSERS
from octavo.config.options import (
    BACKENDS,
    DEVICES,
    KV_CACHE_DTYPES,
    MAX_POOL_TOKENS,
    SCHEDULING_POLICIES,
)
from octavo.config.speculative import speculative_config
from octavo.config.transfer import check_offload_config, transfer_config
from octavo.errors import ConfigError, NotBuilt, UsageError

DEFAULT_TRACE_BATCH = 16


def check(config: Config) -> Config:
    """The configuration with what follows from its values filled in.

    Raises UsageError, ConfigError or NotBuilt, the first fault found, with the flag's name.
    """
    config = _settle_trace(config)
    _check_paths(config)
    _check_names(config)
    _check_sizes(config)
    _check_json(config)
    _check_video(config)
    for feature in _unbuilt(config):
        raise NotBuilt(f"{feature} is not built in this version of Octavo")
    return config


def warnings(config: Config) -> Iterator[str]:
    """What the log should warn of at start."""
    if not config.server.api_key and not _is_loopback(config.server.host):
        yield (
            f"listening on {config.server.host} without --api-key: "
            "everyone who reaches this address can use the server"
        )
    if config.model.threads and config.model.backend == "reference":
        yield "--threads has no effect: it is of the native backend, and this is the reference one"


def notices(config: Config) -> Iterator[str]:
    """What the log should mention at start."""
    parsers = config.parsers
    if "auto" in (parsers.tool_call_parser, parsers.reasoning_parser):
        yield (
            "tool calls and reasoning are not parsed yet: parser auto means none, "
            "both stay in the text of the answer"
        )


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ------------------------------------------------------------------------------ the command line


def _settle_trace(config: Config) -> Config:
    trace = config.trace
    replays, batch = trace.graph_replays, trace.graph_batch
    if (replays > 0) != (trace.shutdown_fifo is not None):
        raise UsageError(
            "--cuda-profile-graph-replays (above 0) and --benchmark-shutdown-fifo "
            "need each other: give both or neither"
        )
    if not replays:
        if batch:
            raise UsageError("--cuda-profile-graph-batch needs --cuda-profile-graph-replays")
        return config
    batch = batch or DEFAULT_TRACE_BATCH
    if batch > config.scheduler.max_num_seqs:
        raise UsageError(
            f"--cuda-profile-graph-batch is {batch}, which must not be above --max-num-seqs "
            f"({config.scheduler.max_num_seqs})"
        )
    return replace(config, trace=replace(trace, graph_batch=batch))


def _check_paths(config: Config) -> None:
    path = config.server.root_path
    if path and (not path.startswith("/") or path.endswith("/")):
        raise UsageError(f"--root-path must begin with / and not end with it, not {path!r}")


# ----------------------------------------------------------------------------- names and numbers


def _check_names(config: Config) -> None:
    parsers = config.parsers
    _one_of("--tool-call-parser", parsers.tool_call_parser, ("auto", "none", *TOOL_PARSERS))
    _one_of("--reasoning-parser", parsers.reasoning_parser, ("auto", "none", *REASONING_PARSERS))
    _one_of("--scheduling-policy", config.scheduler.policy, SCHEDULING_POLICIES)
    _one_of("--backend", config.model.backend, BACKENDS)
    _one_of("--device", config.model.device, DEVICES)
    _one_of("--kv-cache-dtype", config.cache.kv_cache_dtype, KV_CACHE_DTYPES)
    if parsers.enable_auto_tool_choice and parsers.tool_call_parser == "none":
        raise ConfigError(
            "--enable-auto-tool-choice needs a tool parser, but --tool-call-parser is none"
        )


def _one_of(flag: str, value: str, allowed: Iterable[str]) -> None:
    names = list(allowed)
    if value not in names:
        raise ConfigError(f"{flag}: unknown value {value!r}; allowed: {', '.join(names)}")


def _check_sizes(config: Config) -> None:
    cache, length = config.cache, config.model.max_model_len
    if cache.block_size % 16:
        raise ConfigError(f"--block-size must be a multiple of 16, not {cache.block_size}")
    pool = cache.num_blocks * cache.block_size
    if pool > MAX_POOL_TOKENS:
        raise ConfigError(
            f"--num-blocks {cache.num_blocks} x --block-size {cache.block_size} are {pool} tokens; "
            f"the KV cache holds at most {MAX_POOL_TOKENS}; lower --num-blocks"
        )
    if 0 < pool < length:
        raise ConfigError(
            f"--max-model-len is {length} tokens, but the KV cache holds {pool} "
            f"(--num-blocks {cache.num_blocks} x --block-size {cache.block_size}); "
            "lower --max-model-len or raise --num-blocks"
        )


def _check_json(config: Config) -> None:
    if config.transfer.kv_transfer_config is not None:
        transfer_config(config.transfer.kv_transfer_config, config.cache.block_size)
    if config.transfer.offload_config is not None:
        check_offload_config(config.transfer.offload_config)
    if config.speculative.speculative_config is not None:
        speculative_config(config.speculative.speculative_config)
    if config.media.limit_mm_per_prompt is not None:
        check_media_limits(config.media.limit_mm_per_prompt)


def _check_video(config: Config) -> None:
    video = config.video
    if video.video_partition is not None:
        _one_of("--video-partition", video.video_partition, VIDEO_PARTITIONS)
    for extra in video.video_extra:
        if not extra.partition("=")[0] or "=" not in extra:
            raise ConfigError(f"--video-extra must be KEY=VALUE, not {extra!r}")
    if video.video_keep_quant and video.video_dequant_bf16:
        raise ConfigError("--video-keep-quant and --video-dequant-bf16 exclude each other")
    if video.video_dit is not None:
        for flag, path in (("--video-vae", video.video_vae), ("--audio-vae", video.audio_vae)):
            if path is None:
                raise ConfigError(f"--video-dit needs {flag}")


# ---------------------------------------------------------------------------- not in this version


def _unbuilt(config: Config) -> Iterator[str]:
    """The features asked for that this version lacks."""
    for flag, parser in (
        ("--tool-call-parser", config.parsers.tool_call_parser),
        ("--reasoning-parser", config.parsers.reasoning_parser),
    ):
        if parser not in ("auto", "none"):
            yield f"{flag} {parser} (give auto or none)"
    if config.scheduler.policy != "fcfs":
        yield f"--scheduling-policy {config.scheduler.policy} (give fcfs)"
    if config.scheduler.enable_jump_forward:
        yield "jump-forward decoding (--enable-jump-forward or VT_ENABLE_JUMP_FORWARD)"
    if config.model.device == "cuda":
        yield "--device cuda (give auto or cpu)"
    if config.cache.kv_cache_dtype in ("fp8", "int8"):
        yield f"--kv-cache-dtype {config.cache.kv_cache_dtype}"
    transfer = config.transfer
    if transfer.kv_transfer_config is not None and transfer_config(
        transfer.kv_transfer_config, config.cache.block_size
    ):
        yield "KV transfer (--kv-transfer-config)"
    if transfer.offload_config is not None:
        yield "weight offload (--offload-config)"
    if config.speculative.speculative_config is not None:
        yield "speculative decoding (--speculative-config)"
    if config.video.video_dit is not None:
        yield "video generation (--video-dit)"
    if config.speech.speech_model is not None:
        yield "speech (--speech-model)"
