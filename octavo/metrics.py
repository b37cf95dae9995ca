"""What the server counts, under vLLM's metric names so that existing dashboards work.

Each `Metrics` has a registry of its own; nothing is global.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from octavo.types import FinishReason

FIRST_TOKEN_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BUCKETS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
REQUEST_BUCKETS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKEN_BUCKETS = (1, *(2**i for i in range(3, 15)))
N_BUCKETS = (1, 2, 5, 10, 20)
FINISH_REASONS: tuple[FinishReason, ...] = ("stop", "length", "abort", "error")


class Stats(Protocol):
    """What is asked at each scrape."""

    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def kv_cache_usage(self) -> float: ...


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that ended; moments on the monotonic clock, 0: never came to it."""

    reason: FinishReason
    prompt_tokens: int
    generation_tokens: int
    max_tokens: int
    arrived_s: float
    first_scheduled_s: float
    first_token_s: float
    last_token_s: float
    finished_s: float


class Metrics:
    """Counters, gauges and histograms of one engine."""

    def __init__(
        self, model_name: str, max_model_len: int, cache_config: Mapping[str, str]
    ) -> None:
        import prometheus_client as prometheus

        self._prometheus = prometheus
        self._registry = prometheus.CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        lengths = _one_two_five(max_model_len)
        counter, histogram = self._counter, self._histogram
        self._prefix_queries = counter("prefix_cache_queries", "Prompt tokens looked up.")
        self._prefix_hits = counter("prefix_cache_hits", "Prompt tokens found in the cache.")
        self._preemptions = counter("num_preemptions", "Requests that lost their blocks.")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of admitted requests.")
        self._prompt_cached = counter("prompt_tokens_cached", "Those of them not computed.")
        self._generation_tokens = counter("generation_tokens", "Tokens generated.")
        success = self._make(
            prometheus.Counter, "request_success", "Requests that ended.", ("finished_reason",)
        )
        self._success = {
            reason: success.labels(**self._labels, finished_reason=reason)
            for reason in FINISH_REASONS
        }
        self._step_tokens = histogram(
            "iteration_tokens_total", "Tokens in a step.", STEP_TOKEN_BUCKETS
        )
        self._request_prompt = histogram("request_prompt_tokens", "Prompt length.", lengths)
        self._request_generation = histogram("request_generation_tokens", "Answer length.", lengths)
        self._request_longest = histogram(
            "request_max_num_generation_tokens", "Longest answer of a request.", lengths
        )
        self._params_max_tokens = histogram(
            "request_params_max_tokens", "max_tokens of requests.", lengths
        )
        self._params_n = histogram("request_params_n", "n of requests.", N_BUCKETS)
        self._first_token = histogram(
            "time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN_BUCKETS_S
        )
        self._inter_token = histogram(
            "inter_token_latency_seconds", "From token to token.", TOKEN_BUCKETS_S
        )
        self._per_token = histogram(
            "request_time_per_output_token_seconds", "Mean over an answer.", TOKEN_BUCKETS_S
        )
        self._spans = {
            name: histogram(f"request_{name}_time_seconds", text, REQUEST_BUCKETS_S)
            for name, text in (
                ("queue", "Arrival to first scheduled."),
                ("prefill", "First scheduled to first token."),
                ("decode", "First to last token."),
                ("inference", "First scheduled to last token."),
            )
        }
        self._latency = histogram(
            "e2e_request_latency_seconds", "Arrival to end.", REQUEST_BUCKETS_S
        )
        info = self._make(
            prometheus.Gauge, "cache_config_info", "Cache settings.", tuple(cache_config)
        )
        info.labels(**self._labels, **cache_config).set(1)

    def bind(self, stats: Callable[[], Stats]) -> None:
        """Read the gauges from `stats` at each scrape."""
        gauge = self._prometheus.Gauge
        for name, text, read in (
            ("num_requests_running", "Requests in steps.", lambda: stats().running),
            ("num_requests_waiting", "Requests that wait.", lambda: stats().waiting),
            ("kv_cache_usage_perc", "Share of blocks in use, 0 to 1.", _usage_of(stats)),
        ):
            self._make(gauge, name, text).labels(**self._labels).set_function(read)
        by_reason = self._make(
            gauge, "num_requests_waiting_by_reason", "Requests that wait, by why.", ("reason",)
        )
        capacity = by_reason.labels(**self._labels, reason="capacity")
        capacity.set_function(lambda: stats().waiting)

    def observe_params(self, n: int, max_tokens: int) -> None:
        """A client's request, counted once whatever its `n`."""
        self._params_n.observe(n)
        self._params_max_tokens.observe(max_tokens)

    def observe_longest(self, generation_tokens: int) -> None:
        """A client's request ended: the length of its longest choice."""
        self._request_longest.observe(generation_tokens)

    def observe_admission(self, prompt_tokens: int, cached_tokens: int | None) -> None:
        """A request was scheduled for the first time; None: the cache was not asked."""
        self._prompt_tokens.inc(prompt_tokens)
        if cached_tokens is not None:
            self._prefix_queries.inc(prompt_tokens)
            self._prefix_hits.inc(cached_tokens)
            self._prompt_cached.inc(cached_tokens)

    def observe_step(self, num_tokens: int) -> None:
        """A step was planned."""
        self._step_tokens.observe(num_tokens)

    def observe_preemptions(self, count: int) -> None:
        """Requests lost their blocks."""
        self._preemptions.inc(count)

    def observe_first_token(self, seconds: float) -> None:
        """The first token of an answer, after its arrival."""
        self._generation_tokens.inc()
        self._first_token.observe(seconds)

    def observe_inter_token(self, seconds: float) -> None:
        """A further token, after the one before."""
        self._generation_tokens.inc()
        self._inter_token.observe(seconds)

    def observe_finished(self, request: FinishedRequest) -> None:
        """A request ended, for whatever reason."""
        self._success[request.reason].inc()
        self._request_prompt.observe(request.prompt_tokens)
        self._request_generation.observe(request.generation_tokens)
        self._latency.observe(request.finished_s - request.arrived_s)
        if request.first_scheduled_s:
            self._spans["queue"].observe(request.first_scheduled_s - request.arrived_s)
        if request.first_token_s:
            decode_s = request.last_token_s - request.first_token_s
            self._spans["prefill"].observe(request.first_token_s - request.first_scheduled_s)
            self._spans["decode"].observe(decode_s)
            self._spans["inference"].observe(request.last_token_s - request.first_scheduled_s)
            if request.generation_tokens > 1:
                self._per_token.observe(decode_s / (request.generation_tokens - 1))

    def render(self) -> bytes:
        """Everything in Prometheus' text format 0.0.4."""
        return self._prometheus.generate_latest(self._registry)

    # ------------------------------------------------------------------ inside

    def _make(
        self,
        kind: Callable[..., Any],
        name: str,
        text: str,
        labels: tuple[str, ...] = (),
        **kw: Any,
    ) -> Any:
        names = (*self._labels, *labels)
        return kind(f"vllm:{name}", text, labelnames=names, registry=self._registry, **kw)

    def _counter(self, name: str, text: str) -> Any:
        return self._make(self._prometheus.Counter, name, text).labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Any:
        made = self._make(self._prometheus.Histogram, name, text, buckets=buckets)
        return made.labels(**self._labels)


def _usage_of(stats: Callable[[], Stats]) -> Callable[[], float]:
    return lambda: stats().kv_cache_usage


def _one_two_five(limit: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... not above the limit."""
    buckets = []
    scale = 1
    while scale <= limit:
        buckets += [scale * step for step in (1, 2, 5) if scale * step <= limit]
        scale *= 10
    return tuple(buckets)
