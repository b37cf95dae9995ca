"""The engine as the event loop sees it: submit a request, iterate over its deltas, abort."""

import asyncio
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from octavo.backends.base import Backend
from octavo.engine.core import EngineCore, Event
from octavo.engine.loop import Abort, EngineLoop, EngineStats, ResetCache, Stop, Submit, Trace
from octavo.engine.request import Request
from octavo.engine.sampling import SamplingParams
from octavo.engine.settings import EngineSettings
from octavo.engine.stream import RequestStream, TokenDelta
from octavo.engine.trace import StepTrace
from octavo.errors import EngineFailure, InvalidRequest, TooManyRequests, Unavailable
from octavo.metrics import Metrics
from octavo.types import FinishReason


class AsyncEngine:
    """All methods are called on the event loop's thread, after `start`."""

    def __init__(
        self, backend: Backend, settings: EngineSettings, metrics: Metrics | None = None
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        # By request and not by id: a client may use an id again while news of its old request are
        # still under way.
        self._streams: dict[Request, RequestStream] = {}
        self._open: dict[str, Request] = {}
        self._dead = False
        self._event_loop: asyncio.AbstractEventLoop | None = None
        core = EngineCore(backend, settings, metrics)
        self._loop = EngineLoop(core, publish=self._publish, on_death=self._on_death)
        if metrics is not None:
            metrics.bind(self._loop.stats)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the engine thread; call inside the running event loop."""
        self._event_loop = asyncio.get_running_loop()
        self._loop.start()

    async def stop(self, timeout_s: float = 5.0) -> bool:
        """End what is left, then the thread; False when a step did not return in time."""
        self.abort(list(self._open))
        self._loop.inbox.put(Stop())
        return await asyncio.to_thread(self._loop.join, timeout_s)

    @property
    def alive(self) -> bool:
        """False once the engine thread has died."""
        return not self._dead

    @property
    def num_open(self) -> int:
        """Requests whose consumers still expect something."""
        return len(self._streams)

    def check(self) -> None:
        """Raise Unavailable when the engine is dead."""
        if self._dead:
            raise Unavailable("the engine has stopped after an internal error; restart the server")

    def stats(self) -> EngineStats:
        """Running, waiting, cache usage."""
        return self._loop.stats()

    # ------------------------------------------------------------------ requests

    def submit(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream:
        """Queue a request; returns at once. The prompt's list is kept, so do not change it.

        Raises Unavailable when the engine is dead. Asked before: `check_room`.
        """
        self.check()
        if request_id in self._open:
            raise ValueError(f"request id {request_id!r} is in use")
        seed = secrets.randbits(64) if params.seed is None else params.seed % 2**64
        request = Request(
            request_id,
            prompt_token_ids,
            params,
            seed,
            priority=priority,
            cache_salt=cache_salt,
        )
        request.times.arrived = time.monotonic()
        stream = RequestStream(request_id, partial(self._close_stream, request))
        self._open[request_id] = request
        self._streams[request] = stream
        self._loop.inbox.put(Submit(request))
        return stream

    def check_room(self, count: int, coming: int = 0) -> None:
        """Is there room for `count` more requests, running or waiting, beside `coming` others?

        Raises TooManyRequests when not now, InvalidRequest when never.
        """
        settings = self.settings
        if not settings.max_queue:
            return
        most = settings.max_num_seqs + settings.max_queue
        if count > most:
            raise InvalidRequest(
                f"n and the prompts make {count} sequences; allowed: {most} in one request "
                "(--max-num-seqs and --max-queue together)",
                param="n",
            )
        taken = len(self._streams) + coming
        if taken + count > most:
            raise TooManyRequests(
                f"{max(0, taken - settings.max_num_seqs)} requests are waiting and "
                f"--max-queue is {settings.max_queue}; try again later"
            )

    def abort(self, request_ids: Iterable[str]) -> int:
        """End requests with finish reason `abort`, seen by their consumers; how many were open."""
        known = [self._open[request_id] for request_id in request_ids if request_id in self._open]
        if known:
            self._loop.inbox.put(Abort(known, "abort"))
        return len(known)

    def give_up(self) -> None:
        """End all requests with `abort` for their consumers, not waiting for the running step."""
        for stream in self._streams.values():
            stream.deliver(TokenDelta([], finish_reason="abort"))
        self._streams.clear()
        self._open.clear()

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Empty the prefix cache; False while blocks are in use, unless requests are preempted."""
        self.check()
        done: Future[bool] = Future()
        self._loop.inbox.put(ResetCache(reset_running_requests, done))
        return await asyncio.wrap_future(done)

    def trace(self, num_steps: int, path: Path, batch_size: int) -> None:
        """Write the times of the next `num_steps` steps of `batch_size` sequences to `path`."""
        self._loop.inbox.put(Trace(StepTrace(num_steps, batch_size, path)))

    # ------------------------------------------------------------------ inside

    def _close_stream(self, request: Request, reason: FinishReason) -> None:
        self._forget(request)
        if not self._dead:
            self._loop.inbox.put(Abort([request], reason))

    def _forget(self, request: Request) -> None:
        self._streams.pop(request, None)
        if self._open.get(request.request_id) is request:
            del self._open[request.request_id]

    def _publish(self, events: list[Event]) -> None:
        """On the engine thread: one wake-up of the event loop for all the news of a step."""
        self._call_event_loop(self._deliver, events)

    def _deliver(self, events: list[Event]) -> None:
        for request, news in events:
            stream = self._streams.get(request)
            if stream is None:
                continue  # its consumer has gone
            if isinstance(news, TokenDelta):
                stream.deliver(news)
                ended = news.finish_reason is not None
            else:
                stream.fail(news)
                ended = True
            if ended:
                self._forget(request)

    def _on_death(self, error: BaseException) -> None:
        self._call_event_loop(self._bury)

    def _bury(self) -> None:
        self._dead = True
        for stream in self._streams.values():
            stream.fail(EngineFailure("the engine stopped after an internal error"))
        self._streams.clear()
        self._open.clear()

    def _call_event_loop(self, callback: object, *args: object) -> None:
        assert self._event_loop is not None
        if not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(callback, *args)  # type: ignore[arg-type]
