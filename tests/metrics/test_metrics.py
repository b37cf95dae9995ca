"""Metrics in Prometheus text: names, labels, buckets, what moves them."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from octavo.metrics import FinishedRequest, Metrics


@dataclass
class Stats:
    running: int = 2
    waiting: int = 3
    kv_cache_usage: float = 0.25


def samples(metrics: Metrics) -> dict[str, float]:
    """name{sorted labels but model and engine} -> value"""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
            extra = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
            found[sample.name + (f"[{extra}]" if extra else "")] = sample.value
            assert sample.labels["model_name"] == "m"
            assert sample.labels["engine"] == "0"
    return found


def test_what_is_observed_is_told() -> None:
    metrics = Metrics("m", max_model_len=120, cache_config={"block_size": "32"})
    metrics.bind(Stats)
    metrics.observe_params(n=2, max_tokens=16)
    metrics.observe_admission(prompt_tokens=40, cached_tokens=32)
    metrics.observe_step(num_tokens=8)
    metrics.observe_preemptions(1)
    metrics.observe_longest(9)
    metrics.observe_first_token(0.5)
    metrics.observe_inter_token(0.02)
    metrics.observe_finished(FinishedRequest("stop", 40, 2, 16, 1.0, 2.0, 4.0, 7.0, 7.5))
    got = samples(metrics)
    expected = {
        "vllm:num_requests_running": 2,
        "vllm:num_requests_waiting": 3,
        "vllm:num_requests_waiting_by_reason[reason=capacity]": 3,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:prefix_cache_queries_total": 40,
        "vllm:prefix_cache_hits_total": 32,
        "vllm:num_preemptions_total": 1,
        "vllm:prompt_tokens_total": 40,
        "vllm:prompt_tokens_cached_total": 32,
        "vllm:generation_tokens_total": 2,
        "vllm:request_success_total[finished_reason=stop]": 1,
        "vllm:request_success_total[finished_reason=abort]": 0,
        "vllm:iteration_tokens_total_sum": 8,
        "vllm:time_to_first_token_seconds_sum": 0.5,
        "vllm:inter_token_latency_seconds_sum": 0.02,
        "vllm:request_queue_time_seconds_sum": 1,
        "vllm:request_prefill_time_seconds_sum": 2,
        "vllm:request_decode_time_seconds_sum": 3,
        "vllm:request_inference_time_seconds_sum": 5,
        "vllm:request_time_per_output_token_seconds_sum": 3,
        "vllm:e2e_request_latency_seconds_sum": 6.5,
        "vllm:request_params_n_sum": 2,
        "vllm:request_max_num_generation_tokens_sum": 9,
        "vllm:request_params_max_tokens_sum": 16,
        "vllm:cache_config_info[block_size=32]": 1,
    }
    assert {name: got.get(name) for name in expected} == expected
    lengths = [n for n in got if n.startswith("vllm:request_prompt_tokens_bucket")]
    bounds = [name.split("le=")[1].rstrip("]") for name in lengths]
    assert [float(b) for b in bounds] == [1, 2, 5, 10, 20, 50, 100, float("inf")]


def test_a_request_that_never_ran_counts_no_times() -> None:
    metrics = Metrics("m", 100, {})
    metrics.observe_finished(FinishedRequest("abort", 5, 0, 16, 1.0, 0, 0, 0, 2.0))
    got = samples(metrics)
    assert got["vllm:request_success_total[finished_reason=abort]"] == 1
    assert got["vllm:request_queue_time_seconds_count"] == 0
    assert got["vllm:request_decode_time_seconds_count"] == 0


def test_two_servers_in_one_process_do_not_share() -> None:
    first, second = Metrics("m", 10, {}), Metrics("m", 10, {})
    first.observe_preemptions(1)
    assert samples(second)["vllm:num_preemptions_total"] == 0
