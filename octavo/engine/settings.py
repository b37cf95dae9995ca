"""Sizes of an engine, derived once from the configuration, the model and the machine."""

import os
from dataclasses import dataclass
from pathlib import Path

from octavo.backends.base import CacheGroup
from octavo.config import Config
from octavo.engine.pace import STEP_TARGET_S
from octavo.errors import ConfigError

# Share of the free memory that the cache takes when neither --num-blocks nor --kv-cache-memory is
# given. Pages are touched on use only, so an idle server does not hold it.
FREE_MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What scheduler and cache need to know. Lengths and budgets in tokens.

    step_target_s: how long a step may take before its budget is lowered (`engine.pace`); None: any.
    """

    max_model_len: int
    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool = True
    hash_seed: str | None = None
    max_queue: int = 0  # 0: no limit
    step_target_s: float | None = None

    @classmethod
    def derive(
        cls,
        config: Config,
        groups: tuple[CacheGroup, ...],
        model_len: int,
        free_memory_bytes: int | None = None,
    ) -> "EngineSettings":
        """Fit the cache to memory and the model length to the cache.

        model_len: the longest context the model knows. Raises ConfigError when an explicit length
        does not fit the pool, or an explicit pool the memory.
        """
        cache, scheduler = config.cache, config.scheduler
        if config.model.max_model_len > model_len:
            raise ConfigError(
                f"--max-model-len {config.model.max_model_len} is above the model's own length of "
                f"{model_len} tokens; lower it, or leave it out"
            )
        wanted_len = config.model.max_model_len or model_len
        block_bytes = cache.block_size * sum(group.bytes_per_token for group in groups)
        free = available_memory_bytes() if free_memory_bytes is None else free_memory_bytes
        num_blocks = cache.num_blocks or _auto_blocks(config, block_bytes, wanted_len, free)
        if cache.num_blocks * block_bytes > free:
            raise ConfigError(
                f"--num-blocks {num_blocks} x --block-size {cache.block_size} is a KV cache of "
                f"{num_blocks * block_bytes / 2**20:.0f} MiB, but {free / 2**20:.0f} MiB are free; "
                f"lower --num-blocks to {free // block_bytes} or less"
            )
        pool_len = num_blocks * cache.block_size
        if wanted_len > pool_len and config.model.max_model_len:
            raise ConfigError(
                f"--max-model-len {wanted_len} does not fit the KV cache of {num_blocks} blocks x "
                f"{cache.block_size} tokens = {pool_len} tokens; raise --num-blocks or "
                f"--kv-cache-memory, or lower --max-model-len to {pool_len} or less"
            )
        max_model_len = min(wanted_len, pool_len)
        return cls(
            max_model_len=max_model_len,
            block_size=cache.block_size,
            num_blocks=num_blocks,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=_token_budget(config, max_model_len),
            prefix_caching=cache.prefix_caching,
            hash_seed=cache.prefix_caching_hash_seed,
            max_queue=scheduler.max_queue,
            step_target_s=None if scheduler.max_num_batched_tokens else STEP_TARGET_S,
        )

    def cache_in_words(self, groups: tuple[CacheGroup, ...]) -> str:
        """Size of the KV cache, for the log."""
        tokens = self.num_blocks * self.block_size
        size_bytes = tokens * sum(group.bytes_per_token for group in groups)
        caching = "on" if self.prefix_caching else "off"
        return (
            f"KV cache: {self.num_blocks} blocks of {self.block_size} tokens = {tokens} tokens, "
            f"{size_bytes / 2**20:.0f} MiB when full; prefix caching {caching}"
        )


def _auto_blocks(config: Config, block_bytes: int, model_len: int, free_memory_bytes: int) -> int:
    """As many blocks as fit, at least one full model length, at most what all sequences can use."""
    cache = config.cache
    full_length = -(-model_len // cache.block_size)
    if cache.kv_cache_memory:
        fitting = cache.kv_cache_memory // block_bytes
        if fitting < 1:
            raise ConfigError(
                f"--kv-cache-memory {cache.kv_cache_memory} is less than one block of "
                f"{cache.block_size} tokens, which takes {block_bytes} bytes"
            )
        # An explicit size is kept, the model length is fitted down to it.
        return min(fitting, full_length * config.scheduler.max_num_seqs)
    fitting = int(free_memory_bytes * FREE_MEMORY_SHARE) // block_bytes
    most = full_length * config.scheduler.max_num_seqs
    return max(full_length, min(fitting, most))


def _token_budget(config: Config, max_model_len: int) -> int:
    """What the flag says, else 2048 (dense models), within what can be used."""
    scheduler = config.scheduler
    budget = scheduler.max_num_batched_tokens or 2048
    usable = scheduler.max_num_seqs * max_model_len
    return min(max(budget, scheduler.max_num_seqs), usable)


def available_memory_bytes() -> int:
    """Memory that the machine, or the control group we are in, can still give."""
    # Without /proc/meminfo (macOS): half of all there is; what others use is not told there.
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            values = dict(line.split(":", 1) for line in lines)
        free = int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass  # not Linux
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")
        current = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")
        free = min(free, int(limit) - int(current))
    except (OSError, ValueError):
        pass  # no limit ("max") or no control group
    return max(free, 0)
