"""The command line becomes the right values: forms, aliases, repetition, and what is refused."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import Config, Shown, parse_args, parse_args_and
from octavo.config.config import GROUPS, config_from
from octavo.config.fields import flags_of, option, text
from octavo.errors import UsageError


def parse(*argv, environ=()):
    return parse_args([str(word) for word in argv], environ=dict(environ))


def test_defaults():
    config = parse()
    assert config.server.host == "0.0.0.0"
    assert config.server.port == 8000
    assert config.cache.block_size == 32
    assert config.cache.num_blocks == 0
    assert config.scheduler.max_num_seqs == 32
    assert config.scheduler.policy == "fcfs"
    assert config.parsers.tool_call_parser == "auto"
    assert config.parsers.reasoning_parser == "auto"
    assert config.video.video_encoder_max_layers == 50
    assert config.model.model == "smollm2"


def test_a_config_by_hand_has_the_same_defaults_as_the_command_line():
    parsed, made = parse("smollm2"), Config()
    assert all(getattr(parsed, name) == getattr(made, name) for name in GROUPS)


def test_every_field_is_a_flag_or_a_variable_and_has_a_home_of_its_own():
    names = []
    for group in GROUPS.values():
        described = [member.name for member, flag in flags_of(group) if flag.names or flag.env]
        assert described == [member.name for member in fields(group)]
        names += described
    assert len(names) == len(set(names))


EXAMPLES = {
    "--model": ("some/dir", "model", "model", "some/dir"),
    "--host": ("127.0.0.1", "server", "host", "127.0.0.1"),
    "--port": ("80", "server", "port", 80),
    "--tokenizer-config": ("t.json", "model", "tokenizer_config", "t.json"),
    "--served-model-name": ("x", "model", "served_model_name", "x"),
    "--block-size": ("64", "cache", "block_size", 64),
    "--num-blocks": ("7", "cache", "num_blocks", 7),
    "--max-model-len": ("99", "model", "max_model_len", 99),
    "--max-num-seqs": ("3", "scheduler", "max_num_seqs", 3),
    "--max-num-batched-tokens": ("256", "scheduler", "max_num_batched_tokens", 256),
    "--scheduling-policy": ("fcfs", "scheduler", "policy", "fcfs"),
    "--schedule-policy": ("fcfs", "scheduler", "policy", "fcfs"),
    "--kv-cache-memory": ("2G", "cache", "kv_cache_memory", 2 << 30),
    "--kv-cache-dtype": ("bfloat16", "cache", "kv_cache_dtype", "bfloat16"),
    "--device": ("cpu", "model", "device", "cpu"),
    "--backend": ("reference", "model", "backend", "reference"),
    "--root-path": ("/octavo", "server", "root_path", "/octavo"),
    "--drain-timeout": ("0.5", "server", "drain_timeout_s", 0.5),
    "--max-body-bytes": ("1024", "server", "max_body_bytes", 1024),
    "--max-queue": ("5", "scheduler", "max_queue", 5),
    "--max-logprobs": ("0", "server", "max_logprobs", 0),
    "--max-log-len": ("10", "logs", "max_log_len", 10),
    "--video-workdir": ("w", "video", "video_workdir", "w"),
}


@pytest.mark.parametrize("flag", EXAMPLES)
def test_both_forms_of_a_value(flag):
    value, group, name, expected = EXAMPLES[flag]
    for argv in ([flag, value], [f"{flag}={value}"]):
        assert getattr(getattr(parse(*argv), group), name) == expected


SWITCHES = {
    "--enable-force-include-usage": ("server", "enable_force_include_usage", True),
    "--enable-tokenizer-info-endpoint": ("server", "enable_tokenizer_info_endpoint", True),
    "--enable-server-dev-mode": ("server", "enable_server_dev_mode", True),
    "--disable-metrics": ("server", "enable_metrics", False),
    "--enable-metrics": ("server", "enable_metrics", True),
    "--disable-log-requests": ("logs", "enable_log_requests", False),
    "--enable-log-outputs": ("logs", "enable_log_outputs", True),
    "--enable-thinking": ("model", "enable_thinking", True),
    "--no-enable-thinking": ("model", "enable_thinking", False),
    "--verbose": ("logs", "verbose", True),
    "-v": ("logs", "verbose", True),
    "--enable-prefix-caching": ("cache", "enable_prefix_caching", True),
    "--no-enable-prefix-caching": ("cache", "enable_prefix_caching", False),
    "--enable-radix-attention": ("cache", "enable_prefix_caching", True),
    "--disable-radix-attention": ("cache", "enable_prefix_caching", False),
    "--disable-jump-forward": ("scheduler", "enable_jump_forward", False),
    "--language-model-only": ("media", "language_model_only", True),
}


@pytest.mark.parametrize("flag", SWITCHES)
def test_switches(flag):
    group, name, expected = SWITCHES[flag]
    assert getattr(getattr(parse(flag), group), name) is expected
    with pytest.raises(UsageError, match=flag):
        parse(f"{flag}=yes")


def test_tri_state_unset_means_on():
    assert parse().cache.enable_prefix_caching is None
    assert parse().cache.prefix_caching
    assert not parse("--disable-radix-attention").cache.prefix_caching


PREFIX_FLAGS = [flag for flag in SWITCHES if "prefix" in flag or "radix" in flag]
JUMP_FLAGS = ["--enable-jump-forward", "--disable-jump-forward"]


@pytest.mark.parametrize("second", PREFIX_FLAGS)
@pytest.mark.parametrize("first", PREFIX_FLAGS)
def test_prefix_caching_is_set_once(first, second):
    with pytest.raises(UsageError, match=rf"{second}.*prefix caching.*--enable-prefix-caching"):
        parse(first, second)


@pytest.mark.parametrize("second", JUMP_FLAGS)
@pytest.mark.parametrize("first", JUMP_FLAGS)
def test_jump_forward_is_set_once(first, second):
    with pytest.raises(UsageError, match=rf"{second}.*jump-forward"):
        parse(first, second)


@pytest.mark.parametrize("value", ["--x", "--port", "-v", "--", "--help", "-", "a b", "=", "a=b"])
def test_a_value_may_look_like_a_flag(value):
    assert parse("--served-model-name", value).served_name == value
    assert parse(f"--served-model-name={value}").served_name == value


@given(name=st.text(min_size=1, max_size=20))
def test_any_text_is_a_value(name):
    assert parse("--served-model-name", name, "--port", "1").served_name == name


def test_last_value_wins():
    config = parse("--port", 1, "--port=2", "--enable-metrics", "--disable-metrics")
    assert config.server.port == 2
    assert config.server.enable_metrics is False


def test_every_api_key_counts_and_none_is_shown():
    config = parse("--api-key", "a,b", "--api-key=c")
    assert config.server.api_key == ("a,b", "c")
    assert "a,b" not in repr(config)


WRONG = {
    "unknown": (["--no-such-flag"], "--no-such-flag"),
    "unknown with value": (["--no-such-flag=3"], "--no-such-flag"),
    "unknown short": (["-x"], "-x"),
    "abbreviation": (["--hos", "x"], "--hos"),
    "abbreviation with value": (["--served-model=x"], "--served-model"),
    "no value": (["--port"], "--port"),
    "empty value": (["--host="], "--host"),
    "no number": (["--port", "80x"], "--port.*80x"),
    "fraction": (["--port", "1.5"], "--port.*1.5"),
    "long number": (["--port", "9" * 5000], "--port"),
    "unicode digits": (["--port", "８０"], "--port"),
    "port too high": (["--port", "65536"], "--port.*65535"),
    "negative port": (["--port", "-1"], "--port"),
    "no sequences": (["--max-num-seqs", "0"], "--max-num-seqs"),
    "negative budget": (["--max-num-batched-tokens", "-1"], "--max-num-batched-tokens"),
    "no block": (["--block-size", "0"], "--block-size"),
    "huge block": (["--block-size", "16777216"], "--block-size.*from 1 to 4096"),
    "huge number of blocks": (["--num-blocks", "9" * 15], "--num-blocks.*2147483647"),
    "negative blocks": (["--num-blocks=-1"], "--num-blocks"),
    "bytes": (["--kv-cache-memory", "2 cows"], "--kv-cache-memory.*2 cows"),
    "nan": (["--drain-timeout", "nan"], "--drain-timeout"),
    "infinite": (["--drain-timeout", "inf"], "--drain-timeout"),
    "share": (["--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
    "root path": (["--root-path", "octavo"], "--root-path"),
    "empty key": (["--api-key", ""], "--api-key"),
    "two models": (["a", "b"], "one MODEL"),
    "model both ways": (["a", "--model", "b"], "twice"),
    "replays alone": (["--cuda-profile-graph-replays", "2"], "--benchmark-shutdown-fifo"),
    "fifo alone": (["--benchmark-shutdown-fifo", "f"], "--cuda-profile-graph-replays"),
    "batch alone": (["--cuda-profile-graph-batch", "4"], "--cuda-profile-graph-replays"),
}


@pytest.mark.parametrize("case", WRONG)
def test_usage_errors_name_the_flag(case):
    argv, words = WRONG[case]
    with pytest.raises(UsageError, match=words):
        parse(*argv)


TRACE = ["--benchmark-shutdown-fifo", "f", "--cuda-profile-graph-replays", "2"]


def test_traced_batch_has_a_default_and_fits_the_sequences():
    assert parse(*TRACE).trace.graph_batch == 16
    assert parse(*TRACE, "--cuda-profile-graph-batch", 8).trace.graph_batch == 8
    for more in (["--max-num-seqs", 4], ["--cuda-profile-graph-batch", 33]):
        with pytest.raises(UsageError, match="--max-num-seqs"):
            parse(*TRACE, *more)


def test_model_forms():
    assert parse("dir/m").model.model == "dir/m"
    assert parse("--model", "dir/m").model.model == "dir/m"
    assert parse("--port", 80, "dir/m", "-v").model.model == "dir/m"
    assert parse("--", "-odd-name").model.model == "-odd-name"


def test_no_model_is_the_quick_start_and_is_said():
    assert [line for line in parse().notices if "smollm2" in line]
    assert not [line for line in parse("smollm2").notices if "smollm2" in line]
    other = parse_args([], default_model="scripted", environ={})
    assert other.served_name == "scripted"
    assert not [line for line in other.notices if "scripted" in line]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2", "smollm2"),
        ("/models/tiny", "tiny"),
        ("/models/tiny/", "tiny"),
        ("/models/tiny//", "tiny"),
        ("models/tiny.Q4_1.gguf", "tiny.Q4_1.gguf"),
        ("a/../b/.", "b"),
    ],
)
def test_served_name_is_the_last_part_of_the_path(model, name):
    assert parse(model).served_name == name
    assert parse(model, "--served-model-name", "other").served_name == "other"


def test_the_current_folder_has_a_name_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse(".").served_name == tmp_path.name


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_flag_and_default(flag):
    with pytest.raises(Shown) as shown:
        parse("--port", 80, flag, "x")
    for group in GROUPS.values():
        for _, described in flags_of(group):
            assert all(name in shown.value.text for name in described.names + described.off_names)
    assert "Default: 8000." in shown.value.text


def test_version():
    with pytest.raises(Shown, match=r"octavo \d"):
        parse("--version")


def test_flags_without_effect_are_announced_once():
    config = parse("--gpu-memory-utilization", 0.5, "--trust-remote-code", "--video-device", "cpu")
    for flag in ("--gpu-memory-utilization", "--trust-remote-code", "--video-device"):
        assert "\n".join(config.warnings).count(flag) == 1
    assert not [line for line in parse().warnings if "no effect" in line]


@pytest.mark.parametrize(
    ("argv", "announced"),
    [
        (("--threads", 2, "--backend", "reference"), 1),
        (("--threads", 2), 0),
        (("--backend", "reference"), 0),
    ],
)
def test_threads_of_the_other_backend_are_announced(argv, announced):
    lines = [line for line in parse(*argv).warnings if "--threads has no effect" in line]
    assert len(lines) == announced


def test_threads_are_bounded():
    with pytest.raises(UsageError, match=r"--threads.* from 0 to 1024, not 100000"):
        parse("--threads", 100000)


@pytest.mark.parametrize(
    ("argv", "warned"),
    [
        ([], True),
        (["--host", "192.0.2.1"], True),
        (["--host", "::"], True),
        (["--api-key", "k"], False),
        (["--host", "127.0.0.1"], False),
        (["--host", "::1"], False),
        (["--host", "localhost"], False),
    ],
)
def test_an_open_address_is_warned_of(argv, warned):
    assert len([line for line in parse(*argv).warnings if "--api-key" in line]) == warned


def test_config_from_values_by_field_name():
    config = config_from({"port": 7, "model": "m"})
    assert (config.server.port, config.model.model, config.server.host) == (7, "m", "0.0.0.0")


def test_further_flags_of_another_program():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Own:
        """Own"""

        script: str | None = option(None, "--script", doc="A script.", convert=text)

    config, own = parse_args_and(
        Own, ["--served-model-name", "--script", "--script", "s"], prog="p", environ={}
    )
    assert (config.served_name, own.script) == ("--script", "s")
    assert parse_args_and(Own, [], prog="p", environ={})[1].script is None
