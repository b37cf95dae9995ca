"""Sizes of the engine from flags, model and memory."""

import pytest

from octavo.backends.base import CacheGroup
from octavo.config import Config, parse_args
from octavo.engine.settings import EngineSettings, available_memory_bytes
from octavo.errors import ConfigError

GROUP = (CacheGroup("full", (0, 1), bytes_per_token=100),)
PLENTY = 1 << 40


def derive(*flags: str, model_len: int = 1000, free: int = PLENTY) -> EngineSettings:
    config: Config = parse_args(["m", *flags], prog="test", environ={})
    return EngineSettings.derive(config, GROUP, model_len, free)


def test_auto_is_what_all_sequences_can_use() -> None:
    settings = derive("--max-num-seqs", "3")
    assert settings.num_blocks == 3 * 32  # 1000 tokens are 32 blocks of 32
    assert settings.max_model_len == 1000


def test_auto_is_at_least_one_full_length() -> None:
    settings = derive(free=10)
    assert settings.num_blocks == 32
    assert settings.max_model_len == 1000


def test_auto_takes_a_share_of_the_memory() -> None:
    assert derive(free=4 * 40 * 3200).num_blocks == 40


def test_a_length_that_is_not_told_is_fitted_to_the_pool() -> None:
    assert derive("--num-blocks", "8").max_model_len == 256


def test_a_length_that_is_told_must_fit() -> None:
    with pytest.raises(ConfigError, match=r"--max-model-len 900 .* 256 tokens"):
        derive("--kv-cache-memory", str(3200 * 8), "--max-model-len", "900")
    assert derive("--num-blocks", "8", "--max-model-len", "256").max_model_len == 256


def test_a_length_above_the_models_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--max-model-len 1001 .* 1000 tokens"):
        derive("--max-model-len", "1001")


def test_cache_in_bytes() -> None:
    assert derive("--kv-cache-memory", str(3200 * 7 + 5)).num_blocks == 7
    with pytest.raises(ConfigError, match="3200 bytes"):
        derive("--kv-cache-memory", "3199")
    both = derive("--kv-cache-memory", "3200", "--num-blocks", "9")
    assert both.num_blocks == 9


def test_blocks_beyond_the_memory_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"--num-blocks 100 .* 0 MiB are free; .* 50 or less"):
        derive("--num-blocks", "100", free=50 * 3200)
    assert derive("--num-blocks", "50", free=50 * 3200).num_blocks == 50


@pytest.mark.parametrize(
    ("flags", "budget"),
    [
        ((), 2048),
        (("--max-num-seqs", "1"), 1000),
        (("--max-num-batched-tokens", "64"), 64),
        (("--max-num-batched-tokens", "4", "--max-num-seqs", "16"), 16),
    ],
)
def test_token_budget(flags: tuple[str, ...], budget: int) -> None:
    assert derive(*flags).max_num_batched_tokens == budget


def test_there_is_memory_on_this_machine() -> None:
    assert available_memory_bytes() > 1 << 20
