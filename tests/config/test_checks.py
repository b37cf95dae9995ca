"""Values that are no such thing, and features that are not built: refused before any model."""

import pytest

from octavo.config import parse_args
from octavo.config.names import REASONING_PARSERS, TOOL_PARSERS
from octavo.config.speculative import SpeculativeConfig, speculative_config
from octavo.config.transfer import TransferConfig, transfer_config
from octavo.errors import ConfigError, NotBuilt, UsageError


def parse(*argv):
    return parse_args(["absent-model", *map(str, argv)], environ={})


def refusal(*argv):
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert not isinstance(caught.value, UsageError | NotBuilt)
    return str(caught.value)


def test_names_are_complete():
    assert len(set(TOOL_PARSERS)) == len(TOOL_PARSERS) == 48
    assert len(set(REASONING_PARSERS)) == len(REASONING_PARSERS) == 32


def test_unknown_parsers_list_all_names():
    message = refusal("--tool-call-parser", "hermess")
    assert all(f" {name}" in message for name in ("auto", "none", *TOOL_PARSERS))
    message = refusal("--reasoning-parser", "deep")
    assert all(f" {name}" in message for name in ("auto", "none", *REASONING_PARSERS))


TRANSFER = "--kv-transfer-config"
OFFLOADING = '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config"'
LMCACHE = '{"kv_connector":"LMCacheConnector","kv_role":"kv_both","kv_connector_extra_config"'
SPECULATIVE = "--speculative-config"
VIDEO = ["--video-dit", "x.gguf", "--video-vae", "x", "--audio-vae", "x"]

WRONG = {
    "policy": (["--scheduling-policy", "sjf"], ["--scheduling-policy", "sjf", "fcfs", "lpm"]),
    "backend": (["--backend", "torch"], ["torch", "reference"]),
    "device": (["--device", "tpu"], ["tpu", "cuda"]),
    "cache type": (["--kv-cache-dtype", "int3"], ["int3", "bfloat16"]),
    "block size": (["--block-size", "17"], ["--block-size", "17", "16"]),
    "pool": (
        ["--max-model-len", "4096", "--block-size", "16", "--num-blocks", "8"],
        ["--max-model-len", "4096", "128", "--num-blocks"],
    ),
    "pool beyond all numbers": (
        ["--num-blocks", "2147483647", "--block-size", "4096"],
        ["--num-blocks 2147483647", "--block-size 4096", "at most 2147483647"],
    ),
    "auto choice": (["--enable-auto-tool-choice", "--tool-call-parser", "none"], ["--tool-call"]),
    "transfer, no JSON": ([TRANSFER, "{"], [TRANSFER]),
    "transfer, NaN": ([TRANSFER, '{"kv_role": NaN}'], ["NaN"]),
    "transfer, deep": ([TRANSFER, "[" * 100_000], [TRANSFER]),
    "transfer, list": ([TRANSFER, "[1]"], [TRANSFER, "a list"]),
    "transfer, unknown key": ([TRANSFER, '{"colour":1}'], ["colour"]),
    "transfer, twice": ([TRANSFER, '{"kv_role":"kv_both","kv_role":"kv_both"}'], ["kv_role"]),
    "transfer, vLLM's key": ([TRANSFER, '{"kv_port":1}'], ["kv_port", "vLLM"]),
    "transfer, type": ([TRANSFER, '{"kv_connector":3,"kv_role":"kv_both"}'], ["kv_connector"]),
    "transfer, null": ([TRANSFER, '{"engine_id":null}'], ["engine_id", "null"]),
    "transfer, role": (
        [TRANSFER, '{"kv_connector":"LMCacheConnector","kv_role":"boss"}'],
        ["kv_role", "boss", "kv_both"],
    ),
    "transfer, no role": ([TRANSFER, '{"kv_connector":"LMCacheConnector"}'], ["kv_role"]),
    "transfer, connector": (
        [TRANSFER, '{"kv_connector":"Pigeon","kv_role":"kv_both"}'],
        ["Pigeon", "LMCacheConnector", "OffloadingConnector"],
    ),
    "transfer, policy": ([TRANSFER, '{"kv_load_failure_policy":"shrug"}'], ["shrug", "recompute"]),
    "extra, no map": ([TRANSFER, LMCACHE + ":[]}"], ["kv_connector_extra_config"]),
    "extra, nested": ([TRANSFER, LMCACHE + ':{"host":{}}}'], ["host"]),
    "extra, unknown": ([TRANSFER, LMCACHE + ':{"hosts":"x"}}'], ["hosts", "hash_algo"]),
    "extra, port": ([TRANSFER, LMCACHE + ':{"port":70000}}'], ["port", "65535"]),
    "extra, hash": ([TRANSFER, LMCACHE + ':{"hash_algo":"md5"}}'], ["hash_algo", "md5"]),
    "extra, boolean": ([TRANSFER, LMCACHE + ':{"save_unfull_chunk":2}}'], ["save_unfull_chunk"]),
    "offloading, no folder": ([TRANSFER, OFFLOADING + ':{"num_cpu_blocks":2}}'], ["root_dir"]),
    "offloading, no size": ([TRANSFER, OFFLOADING + ':{"root_dir":"x"}}'], ["cpu_bytes_to_use"]),
    "offloading, multiple": (
        [TRANSFER, OFFLOADING + ':{"root_dir":"x","num_cpu_blocks":2,"offload_block_tokens":48}}'],
        ["offload_block_tokens", "48", "32"],
    ),
    "extra without connector": ([TRANSFER, '{"kv_connector_extra_config":{"a":1}}'], ["needs"]),
    "offload, no JSON": (["--offload-config", "x"], ["--offload-config"]),
    "offload, key": (["--offload-config", '{"cpu":1}'], ["cpu"]),
    "offload, type": (["--offload-config", '{"uva":1}'], ["uva"]),
    "speculative, no JSON": ([SPECULATIVE, "ngram"], [SPECULATIVE]),
    "speculative, no method": ([SPECULATIVE, '{"num_speculative_tokens":2}'], ["method", "ngram"]),
    "speculative, method": ([SPECULATIVE, '{"method":"oracle"}'], ["oracle", "ngram"]),
    "speculative, vLLM's": ([SPECULATIVE, '{"method":"medusa"}'], ["medusa", "vLLM", "ngram"]),
    "speculative, key": ([SPECULATIVE, '{"method":"mtp","colour":1}'], ["colour"]),
    "speculative, vLLM's key": ([SPECULATIVE, '{"method":"mtp","revision":"x"}'], ["vLLM"]),
    "speculative, no count": ([SPECULATIVE, '{"method":"ngram"}'], ["num_speculative_tokens"]),
    "speculative, count": (
        [SPECULATIVE, '{"method":"ngram","num_speculative_tokens":true}'],
        ["num_speculative_tokens", "true"],
    ),
    "speculative, range": (
        [SPECULATIVE, '{"method":"ngram","num_speculative_tokens":2,'
         '"prompt_lookup_min":5,"prompt_lookup_max":2}'],
        ["prompt_lookup_min", "5", "2"],
    ),
    "speculative, foreign lookup": (
        [SPECULATIVE, '{"method":"mtp","prompt_lookup_min":2}'],
        ["prompt_lookup_min", "mtp"],
    ),
    "speculative, no model": (
        [SPECULATIVE, '{"method":"draft_model","num_speculative_tokens":2}'],
        ["'model'"],
    ),
    "speculative, no place for a model": ([SPECULATIVE, '{"method":"mtp","model":"x"}'], ["model"]),
    "speculative, sampling": (
        [SPECULATIVE, '{"method":"mtp","draft_sample_method":"dice"}'],
        ["dice", "greedy"],
    ),
    "limits, no JSON": (["--limit-mm-per-prompt", "2"], ["--limit-mm-per-prompt"]),
    "limits, modality": (["--limit-mm-per-prompt", '{"smell":1}'], ["smell", "image"]),
    "limits, count": (["--limit-mm-per-prompt", '{"image":-1}'], ["image", "-1"]),
    "limits, above": (["--limit-mm-per-prompt", '{"image":1000}'], ["image", "999"]),
    "limits, no count": (["--limit-mm-per-prompt", '{"image":{"width":3}}'], ["image", "count"]),
    "limits, hint": (["--limit-mm-per-prompt", '{"image":{"count":1,"hue":3}}'], ["hue"]),
    "partition": ([*VIDEO, "--video-partition", "zz"], ["zz", "fl2va", "ref2va"]),
    "partition alone": (["--video-partition", "zz"], ["zz", "ref2va"]),
    "video without its VAE": (["--video-dit", "x"], ["--video-vae"]),
    "video extra": (["--video-extra", "steps"], ["--video-extra", "steps"]),
    "video weights": (["--video-keep-quant", "--video-dequant-bf16"], ["exclude"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_refused_by_name(case):
    argv, words = WRONG[case]
    message = refusal(*argv)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "absent-model" not in message


UNBUILT = {
    "tool parser": ["--tool-call-parser", "hermes"],
    "reasoning parser": ["--reasoning-parser", "deepseek_r1"],
    "policy": ["--schedule-policy", "lpm"],
    "jump-forward": ["--enable-jump-forward"],
    "cuda": ["--device", "cuda"],
    "fp8": ["--kv-cache-dtype", "fp8"],
    "int8": ["--kv-cache-dtype", "int8"],
    "transfer": [TRANSFER, OFFLOADING + ':{"root_dir":"x","num_cpu_blocks":2}}'],
    "offload": ["--offload-config", "{}"],
    "speculative": [SPECULATIVE, '{"method":"mtp"}'],
    "video": [*VIDEO, "--video-partition", "ref2va"],
    "speech": ["--speech-model", "x"],
}


@pytest.mark.parametrize("case", UNBUILT)
def test_what_is_not_built_says_so(case):
    flag = UNBUILT[case][0]
    with pytest.raises(NotBuilt, match="not built") as caught:
        parse(*UNBUILT[case])
    assert flag in str(caught.value) or flag == "--schedule-policy"


def test_a_wrong_value_is_told_before_a_missing_feature():
    assert "sjf" in refusal(*VIDEO, "--scheduling-policy", "sjf")


def test_transfer_without_connector_is_off():
    assert transfer_config("{}", 32) is None
    assert parse(TRANSFER, "{}").transfer.kv_transfer_config == "{}"


def test_transfer_values():
    made = transfer_config(LMCACHE + ':{"port":"7","offload_prompt_only":false}}', 32)
    assert made == TransferConfig(
        "LMCacheConnector", "kv_both", extra={"port": 7, "offload_prompt_only": False}
    )


@pytest.mark.parametrize(
    ("given", "lookup"),
    [
        ("", (5, 5)),
        (',"prompt_lookup_min":2', (2, 2)),
        (',"prompt_lookup_max":7', (7, 7)),
        (',"prompt_lookup_min":2,"prompt_lookup_max":3', (2, 3)),
    ],
)
def test_lookup_lengths(given, lookup):
    made = speculative_config('{"method":"ngram","num_speculative_tokens":4' + given + "}")
    assert made == SpeculativeConfig("ngram", 4, *lookup)


def test_media_limits():
    text = '{"image":2,"video":{"count":0,"num_frames":8}}'
    assert parse("--limit-mm-per-prompt", text).media.limit_mm_per_prompt == text


def test_parser_auto_is_said_to_mean_none():
    assert [line for line in parse().notices if "not parsed" in line]
    none = parse("--tool-call-parser", "none", "--reasoning-parser", "none")
    assert not [line for line in none.notices if "not parsed" in line]
