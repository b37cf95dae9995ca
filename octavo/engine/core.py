"""One step of the engine, without threads: schedule, run, append, check for ends.

The core owns the scheduler, the cache and the backend, and gathers news for the consumers.
"""

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from octavo.backends.base import Backend, Batch, RowLogprobs, StepOutput
from octavo.engine.batch import Row, build_batch
from octavo.engine.blocks import CacheCorrupt
from octavo.engine.kv import KVManager
from octavo.engine.pace import Pace
from octavo.engine.request import Request, why_finished
from octavo.engine.scheduler import Schedule, Scheduler
from octavo.engine.settings import EngineSettings
from octavo.engine.stream import TokenDelta
from octavo.engine.trace import StepTrace
from octavo.errors import EngineFailure, RequestError
from octavo.metrics import FinishedRequest, Metrics
from octavo.types import FinishReason, PositionLogprobs, TokenLogprob

log = logging.getLogger(__name__)

IDLE_CHECK_INTERVAL_S = 5.0


class Event(NamedTuple):
    """News for one request's consumer: a delta or an error."""

    request: Request
    news: TokenDelta | RequestError


class EngineCore:
    """Called from one thread."""

    def __init__(
        self, backend: Backend, settings: EngineSettings, metrics: Metrics | None = None
    ) -> None:
        self.settings = settings
        self.kv = KVManager(
            backend.cache_groups,
            settings.num_blocks,
            settings.block_size,
            prefix_caching=settings.prefix_caching,
            hash_seed=settings.hash_seed,
        )
        self.scheduler = Scheduler(
            self.kv,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            now=time.monotonic,
        )
        self._pace = Pace(settings.max_num_batched_tokens, target_s=settings.step_target_s)
        self._backend = backend
        self._metrics = metrics
        self._checked_s = 0.0
        self._events: list[Event] = []
        self._trace: StepTrace | None = None

    def allocate_cache(self) -> None:
        """Reserve the memory of the KV cache."""
        self._backend.allocate_cache(self.settings.num_blocks, self.settings.block_size)

    @property
    def has_work(self) -> bool:
        """Is there any request that is not finished?"""
        return self.scheduler.has_work

    def add(self, request: Request) -> None:
        """Take in a new request."""
        self.scheduler.add(request)

    def abort(self, requests: Sequence[Request], reason: FinishReason) -> None:
        """End these requests, those of them that have not ended."""
        for request in requests:
            if not request.finished:
                self._end(request, reason, TokenDelta(cached_tokens=request.num_cached or 0))

    def fail_all(self) -> None:
        """The engine dies: every request ends with an error."""
        for request in [*self.scheduler.running, *self.scheduler.waiting]:
            self._end(request, "error", EngineFailure("the engine stopped after an internal error"))

    def reset_prefix_cache(self, preempt_running: bool) -> bool:
        """Empty the prefix cache; False while blocks are in use."""
        if preempt_running:
            self.scheduler.preempt_all()
        return self.kv.forget_all()

    def trace(self, trace: StepTrace) -> None:
        """Trace the coming steps; a trace that is not done yet is dropped."""
        self._trace = trace

    def take_events(self) -> list[Event]:
        """The news since the last call."""
        events, self._events = self._events, []
        return events

    def step(self) -> None:
        """Plan and run one step. A failed one ends its own requests; nothing is raised."""
        began_s = time.monotonic()
        schedule = self.scheduler.schedule(self._pace.budget(len(self.scheduler.running)))
        self._observe(schedule)
        if not schedule.work:
            self._refuse_what_cannot_fit(schedule)
            return
        try:
            batch, rows = build_batch(schedule, self.kv)
            output = self._run(batch)
            _check_output(rows, output)
        except Exception as error:
            self._fail(schedule, error)
            return
        self._append(schedule, rows, output)
        if self._trace is None:  # a traced step takes longer
            self._pace.note(schedule.num_tokens, len(rows), time.monotonic() - began_s)
        if self._trace is not None and self._trace.done:
            self._trace.write()
            self._trace = None

    def _run(self, batch: Batch) -> StepOutput:
        """The step itself; traced when a trace waits for batches of this size."""
        trace = self._trace
        if trace is None or len(batch.request_ids) != trace.batch_size:
            return self._backend.start(batch).finish()
        self._backend.profile(True)
        try:
            output = self._backend.start(batch).finish()
        finally:
            times = self._backend.profile(False)
        trace.add(times)
        return output

    def _append(self, schedule: Schedule, rows: list[Row], output: StepOutput) -> None:
        """Publish full blocks, then give each row's token to its request and check for its end."""
        for item in schedule.work:
            self.kv.publish(item.request)
        token_ids = output.token_ids.tolist()
        for row, token_id, logprobs in zip(rows, token_ids, output.logprobs, strict=True):
            if row.scored is not None:
                assert row.request.prompt_logprobs is not None
                assert logprobs is not None
                entry = _position_logprobs(token_id, logprobs)
                row.request.prompt_logprobs[row.scored] = entry
            else:
                self._append_token(row.request, token_id, logprobs)
        for item in schedule.work:
            if item.samples and item.request.params.max_tokens == 0:
                self._end(item.request, "length", self._delta(item.request))

    def _append_token(self, request: Request, token_id: int, logprobs: RowLogprobs | None) -> None:
        request.append(token_id)
        self._observe_token(request)
        delta = self._delta(request)
        delta.token_ids.append(token_id)
        if logprobs is not None:
            delta.logprobs = [_position_logprobs(token_id, logprobs)]
        if ended := why_finished(request, self.settings.max_model_len):
            delta.stop_reason = ended[1]
            self._end(request, ended[0], delta)
        else:
            self._events.append(Event(request, delta))

    def _delta(self, request: Request) -> TokenDelta:
        scores, first = request.prompt_logprobs, request.num_output <= 1
        return TokenDelta(
            prompt_logprobs=scores if first else None, cached_tokens=request.num_cached or 0
        )

    # ------------------------------------------------------------------ ends

    def _end(self, request: Request, reason: FinishReason, news: TokenDelta | RequestError) -> None:
        """End a request that is not finished: free its blocks, tell its consumer, count it."""
        self.scheduler.finish(request, reason)
        if isinstance(news, TokenDelta):
            news.finish_reason = reason
        self._events.append(Event(request, news))
        self._observe_end(request, reason)

    def _fail(self, schedule: Schedule, error: Exception) -> None:
        """A failed step takes its own requests with it and nobody else's."""
        log.error("a model step failed; its %d requests end", len(schedule.work), exc_info=error)
        for item in schedule.work:
            failure = EngineFailure("the model step of this request failed; try it again")
            self._end(item.request, "error", failure)

    def _refuse_what_cannot_fit(self, schedule: Schedule) -> None:
        """A request that does not fit an empty cache would block the queue for ever."""
        if not self.scheduler.running and not schedule.preempted:
            request = self.scheduler.waiting[0]
            log.error("request %s can never fit the cache", request.request_id)
            failure = EngineFailure("the request does not fit the KV cache of this server")
            self._end(request, "error", failure)

    def check_idle(self) -> None:
        """Without requests the books of the cache must agree and no block may be in use.

        A leak is an error of ours, and logged. The walk is made at most every few seconds, so that
        single requests do not pay for it.
        """
        now_s = time.monotonic()
        if now_s - self._checked_s < IDLE_CHECK_INTERVAL_S:
            return
        self._checked_s = now_s
        try:
            counts = self.kv.check()
        except CacheCorrupt as error:
            log.error("the KV cache is corrupt: %s", error)
            return
        for count in counts:
            if count.used:
                log.error("KV cache: %d blocks are in use while no request is", count.used)

    # ------------------------------------------------------------------ metrics

    def _observe(self, schedule: Schedule) -> None:
        if self._metrics is None:
            return
        for request in schedule.admitted:
            if request.num_preemptions == 0:
                looked_up = self.kv.prefix_caching and request.reads_prefix_cache
                cached = (request.num_cached or 0) if looked_up else None
                self._metrics.observe_admission(request.prompt_len, cached)
        self._metrics.observe_preemptions(len(schedule.preempted))
        if schedule.work:
            self._metrics.observe_step(schedule.num_tokens)

    def _observe_token(self, request: Request) -> None:
        now, times = time.monotonic(), request.times
        if self._metrics is not None:
            if times.last_token:
                self._metrics.observe_inter_token(now - times.last_token)
            else:
                self._metrics.observe_first_token(now - times.arrived)
        times.first_token = times.first_token or now
        times.last_token = now

    def _observe_end(self, request: Request, reason: FinishReason) -> None:
        if self._metrics is None:
            return
        times = request.times
        self._metrics.observe_finished(
            FinishedRequest(
                reason=reason,
                prompt_tokens=request.prompt_len,
                generation_tokens=request.num_output,
                max_tokens=request.params.max_tokens,
                arrived_s=times.arrived,
                first_scheduled_s=times.first_scheduled,
                first_token_s=times.first_token,
                last_token_s=times.last_token,
                finished_s=times.finished,
            )
        )


def _check_output(rows: list[Row], output: StepOutput) -> None:
    """A backend's answer has a token for each row, and log-probabilities where they are wanted."""
    if not len(rows) == len(output.token_ids) == len(output.logprobs):
        raise RuntimeError(
            f"the backend answered {len(output.token_ids)} tokens and {len(output.logprobs)} "
            f"log-probabilities for {len(rows)} rows"
        )
    for row, logprobs in zip(rows, output.logprobs, strict=True):
        if row.scored is not None and logprobs is None:
            raise RuntimeError("the backend kept no log-probabilities of a scored row")


def _position_logprobs(token_id: int, row: RowLogprobs) -> PositionLogprobs:
    top = tuple(
        TokenLogprob(top_id, value, rank)
        for rank, (top_id, value) in enumerate(
            zip(row.top_ids.tolist(), row.top_values.tolist(), strict=True), 1
        )
    )
    return PositionLogprobs(TokenLogprob(token_id, row.chosen, row.rank), top)
