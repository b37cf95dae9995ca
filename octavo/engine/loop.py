"""The engine thread: take what came in, step, publish. Nothing else touches the core."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from octavo.engine.core import EngineCore, Event
from octavo.engine.request import Request
from octavo.engine.trace import StepTrace
from octavo.errors import Unavailable
from octavo.types import FinishReason

log = logging.getLogger(__name__)


class Submit(NamedTuple):
    """A new request."""

    request: Request


class Abort(NamedTuple):
    """End these requests, if they have not ended."""

    requests: Sequence[Request]
    reason: FinishReason


class ResetCache(NamedTuple):
    """Empty the prefix cache; `done` gets whether it could be."""

    preempt_running: bool
    done: "Future[bool]"


class Trace(NamedTuple):
    """Trace the coming steps."""

    trace: StepTrace


class Stop(NamedTuple):
    """Leave the loop."""


Message = Submit | Abort | ResetCache | Trace | Stop


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Seen from outside at any moment. kv_cache_usage: 0 to 1."""

    running: int
    waiting: int
    kv_cache_usage: float


class EngineLoop:
    """Runs a core on its own thread.

    publish: called on that thread with the news of each step. on_death: called once when the thread
    ends by an error that is not a failed step.
    """

    def __init__(
        self,
        core: EngineCore,
        *,
        publish: Callable[[list[Event]], None],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._core = core
        self._publish = publish
        self._on_death = on_death
        self._stopping = False
        self._unanswered: Future[bool] | None = None
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)

    def start(self) -> None:
        """Reserve the cache and start the thread."""
        self._core.allocate_cache()
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; True when it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stats(self) -> EngineStats:
        """Requests that run and wait (what is still in the inbox included), blocks in use."""
        scheduler = self._core.scheduler
        waiting = len(scheduler.waiting) + self.inbox.qsize()
        return EngineStats(len(scheduler.running), waiting, self._core.kv.usage)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_inbox()
                if self._core.has_work and not self._stopping:
                    self._core.step()
                if events := self._core.take_events():
                    self._publish(events)
        except BaseException as error:
            log.critical("the engine thread died", exc_info=error)
            with suppress(Exception):  # whatever state it died in
                self._core.fail_all()
            self._on_death(error)
        finally:
            self._refuse_messages()

    def _refuse_messages(self) -> None:
        """Nobody will answer what is still in the inbox, or what a death interrupted."""
        waiting = [self._unanswered] if self._unanswered is not None else []
        with suppress(queue.Empty):
            while True:
                message = self.inbox.get_nowait()
                if isinstance(message, ResetCache):
                    waiting.append(message.done)
        for done in waiting:
            if not done.done():
                done.set_exception(Unavailable("the engine has stopped"))

    def _take_inbox(self) -> None:
        """Handle every message that is there; wait for one when there is nothing else to do."""
        if not self._core.has_work:
            self._core.check_idle()
            self._handle(self.inbox.get())
        while True:
            try:
                self._handle(self.inbox.get_nowait())
            except queue.Empty:
                return

    def _handle(self, message: Message) -> None:
        match message:
            case Submit(request):
                self._core.add(request)
            case Abort(requests, reason):
                self._core.abort(requests, reason)
            case ResetCache(preempt_running, done):
                self._unanswered = done
                done.set_result(self._core.reset_prefix_cache(preempt_running))
            case Trace(trace):
                self._core.trace(trace)
            case Stop():
                self._stopping = True
