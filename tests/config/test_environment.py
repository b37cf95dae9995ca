"""Environment variables are read once into the configuration."""

import pytest

from octavo.config import parse_args
from octavo.errors import ConfigError, NotBuilt


def parse(*argv, **environ):
    return parse_args(["m", *argv], environ=environ)


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "on"])
def test_jump_forward_variable_switches_on_over_the_flag(word):
    with pytest.raises(NotBuilt, match="VT_ENABLE_JUMP_FORWARD"):
        parse("--disable-jump-forward", VT_ENABLE_JUMP_FORWARD=word)


@pytest.mark.parametrize("word", ["0", "false", "", "True", "yes"])
def test_jump_forward_variable_switches_off_over_the_flag(word):
    config = parse("--enable-jump-forward", VT_ENABLE_JUMP_FORWARD=word)
    assert config.scheduler.enable_jump_forward is False


def test_dev_mode():
    assert parse(VLLM_SERVER_DEV_MODE="1").server.enable_server_dev_mode
    assert not parse(VLLM_SERVER_DEV_MODE="0").server.enable_server_dev_mode
    assert parse("--enable-server-dev-mode", VLLM_SERVER_DEV_MODE="0").server.enable_server_dev_mode


def test_hash_seed_order():
    seed = "VLLM_PREFIX_CACHING_HASH_SEED"
    assert parse().cache.prefix_caching_hash_seed is None
    assert parse(PYTHONHASHSEED="7").cache.prefix_caching_hash_seed == "7"
    both = parse(**{seed: "x", "PYTHONHASHSEED": "7"})
    assert both.cache.prefix_caching_hash_seed == "x"


@pytest.mark.parametrize("variable", ["VLLM_PREFIX_CACHING_HASH_SEED", "PYTHONHASHSEED"])
def test_random_hash_seed_is_passed_on(variable):
    """The engine makes a fresh seed of the word."""
    assert parse(**{variable: "random"}).cache.prefix_caching_hash_seed == "random"


@pytest.mark.parametrize(
    ("variable", "field", "value"),
    [
        ("VT_SERVER_SSE_PING_S", "sse_ping_s", 2.5),
        ("VT_SERVER_MAX_NEW_TOKENS", "max_new_tokens", 100),
        ("VT_SERVER_MAX_PROMPT_CHARS", "max_prompt_chars", 1000),
        ("VLLM_MAX_COMPLETION_PROMPTS", "max_completion_prompts", 3),
    ],
)
def test_numbers(variable, field, value):
    assert getattr(parse(**{variable: str(value)}).server, field) == value
    assert parse(**{variable: ""}).server == parse().server
    with pytest.raises(ConfigError, match=f"{variable}.*'much'"):
        parse(**{variable: "much"})


def test_other_variables_change_nothing():
    assert parse(PORT="1", MODEL="x", OCTAVO_PORT="2") == parse()
