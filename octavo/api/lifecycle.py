"""The life of a server: bind → load → listen → engine → drain → stop, and its exit code.

SIGTERM and SIGINT: new requests get 503, running ones finish within the drain timeout, exit 0; a
second signal ends at once. Before the server listens a signal ends it with 0 too. With a shutdown
pipe only its byte Q is a good end.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.api.fifo import ShutdownPipe
from octavo.api.listener import BACKLOG, Listener
from octavo.config import Config
from octavo.engine.settings import EngineSettings
from octavo.serving.context import Context, make_context
from octavo.serving.loading import Served, load_served

if TYPE_CHECKING:
    import uvicorn

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SWITCH_INTERVAL_S = 0.0005  # so that no thread waits 5 ms for another
WORKER_THREADS = 4
POLL_S = 0.02
GIVE_UP_S = 2.0  # for what was told to end, after the drain
STEP_S = 5.0  # for the last step
FORCED_S = 0.2  # for each of these after a second signal
KEEP_ALIVE_S = 75

logger = logging.getLogger(__name__)


def serve(config: Config, load: Callable[[Config], Served] = load_served) -> int:
    """Serve until told to stop; the exit code. Raises ConfigError when it cannot start.

    load: makes the served model. Doubles pass their own.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with early_stop() as check:
            return _serve(config, load, check)
    except StoppedEarly as stopped:
        logger.info("%s: ending before anything was served", stopped)
        return idle_exit_code(config)


def idle_exit_code(config: Config) -> int:
    """Of an end by a signal: 0, but 1 with a shutdown pipe, which must be heard for a good end."""
    return 0 if config.trace.shutdown_fifo is None else 1


class StoppedEarly(BaseException):
    """A signal came while the model was loaded. No Exception: nothing on the way handles it."""


@contextmanager
def early_stop() -> Iterator[Callable[[], None]]:
    """Raise StoppedEarly when an ending signal comes and no event loop listens to it yet.

    What it yields raises it again if one came: Python drops what is raised while an object is being
    deleted, or in a callback.
    """
    heard: list[str] = []

    def stop(number: int, _: object) -> None:
        heard.append(signal.Signals(number).name)
        check()

    def check() -> None:
        if heard:
            raise StoppedEarly(heard[0])

    before = {number: signal.signal(number, stop) for number in ENDING_SIGNALS}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(config: Config, load: Callable[[Config], Served], check: Callable[[], None]) -> int:
    with Listener(config.server.host, config.server.port) as listener:
        pipe = ShutdownPipe(config.trace.shutdown_fifo) if config.trace.shutdown_fifo else None
        served = load(config)
        groups = served.backend.cache_groups
        settings = EngineSettings.derive(config, groups, served.model_len)
        logger.info("%s backend, %s", served.backend.name, settings.cache_in_words(groups))
        if settings.max_model_len < served.model_len and not config.model.max_model_len:
            logger.info(
                "the model's length is fitted to the KV cache: %d of %d tokens",
                settings.max_model_len,
                served.model_len,
            )
        listener.listen()
        import uvloop

        check()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(config, served, settings, listener, pipe))


async def _run(
    config: Config,
    served: Served,
    settings: EngineSettings,
    listener: Listener,
    pipe: ShutdownPipe | None,
) -> int:
    with ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="octavo-worker") as workers:
        context = make_context(config, served, settings, workers)
        life = Life(context, pipe, listener)
        context.engine.start()
        try:
            if await life.loaded():
                await life.run()
        finally:
            if not await context.engine.stop(FORCED_S if life.forced else STEP_S):
                logger.warning("a model step did not return in time; leaving without it")
        return life.exit_code


class Life:
    """From listening to the end."""

    def __init__(self, context: Context, pipe: ShutdownPipe | None, listener: Listener) -> None:
        """Hear the signals from now on; call inside the running event loop."""
        self._context = context
        self._pipe = pipe
        self._listener = listener
        self._server = make_server(context)
        self.exit_code = idle_exit_code(context.config)
        self.forced = False  # by a second signal
        self._draining: asyncio.Task[None] | None = None
        self._num_traces = 0
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self.on_signal, number.name)
        if pipe is not None:
            pipe.watch(loop, self.on_pipe)
        if context.config.trace.graph_replays:
            loop.add_signal_handler(signal.SIGUSR2, self.on_trace)

    async def loaded(self) -> bool:
        """Wait until the model can be run; False: a signal came before. Raises what went wrong."""
        try:
            await asyncio.to_thread(self._context.served.backend.wait_loaded)
        except Exception:
            if not self._context.draining:
                raise
        return not self._context.draining

    async def run(self) -> None:
        """Serve until drained."""
        # What is loaded stays (some garbage of the loading with it): later collections need not go
        # through it. `cli.serve` has put them off until here.
        gc.freeze()
        gc.enable()
        announce = asyncio.create_task(self._announce())
        try:
            await self._server.serve(sockets=[self._listener.socket])
            if self.forced:
                await self._end_connections()
        finally:
            announce.cancel()
            gc.unfreeze()
            if self._pipe is not None:
                self._pipe.close()

    async def _end_connections(self) -> None:
        """Those that do not end by themselves; nothing is answered there any more."""
        state = self._server.server_state
        if await _until(lambda: not state.tasks, FORCED_S):
            return
        for connection in list(state.connections):
            connection.transport.abort()
        await _until(lambda: not state.connections, FORCED_S)
        for task in list(state.tasks):
            task.cancel()
        await _until(lambda: not state.tasks, FORCED_S)

    async def _announce(self) -> None:
        while not self._server.started:
            await asyncio.sleep(POLL_S)
        logger.info("listening on %s, model %s", self._listener.url, self._context.served.name)

    def on_signal(self, name: str) -> None:
        """The first begins the drain, the second ends everything."""
        if self._draining is None:
            logger.info("%s: finishing what runs, taking nothing new", name)
            self.begin_drain()
        else:
            logger.warning("%s again: ending now", name)
            self.forced = True
            self._server.force_exit = True
            self._server.should_exit = True
            self._context.engine.give_up()

    def on_trace(self) -> None:
        """SIGUSR2 arms a trace of the coming steps."""
        trace = self._context.config.trace
        self._num_traces += 1
        path = Path(f"octavo-trace-{os.getpid()}-{self._num_traces}.json").absolute()
        logger.info(
            "[VT_CUDA_PROFILE] tracing %d steps of %d sequences to %s",
            trace.graph_replays,
            trace.graph_batch,
            path,
        )
        self._context.engine.trace(trace.graph_replays, path, trace.graph_batch)

    def on_pipe(self, byte: bytes) -> None:
        """Q is the good end, everything else a failure."""
        self.exit_code = 0 if byte == b"Q" else 1
        logger.info("[VT_BENCH_SHUTDOWN] %s", "stopping" if byte == b"Q" else "failed")
        if self._draining is None:
            self.begin_drain()

    def begin_drain(self) -> None:
        """Refuse new requests and end when the running ones have."""
        self._context.draining = True
        self._context.served.backend.stop_loading()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        context, server = self._context, self._server
        if not await _until(lambda: not context.active, context.config.server.drain_timeout_s):
            logger.warning("the drain timeout is over: ending %d requests", len(context.active))
            context.abort()
            await _until(lambda: not context.active, GIVE_UP_S)
        server.should_exit = True
        # No answer is left to finish. What is open now are bodies that do not come and clients
        # that do not read, and the server would wait for them.
        if not await _until(lambda: not server.server_state.connections, GIVE_UP_S):
            for task in list(server.server_state.tasks):
                task.cancel()
            await _until(lambda: not server.server_state.connections, GIVE_UP_S)
        server.force_exit = True


async def _until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for it; False: the time was over before."""
    now = asyncio.get_running_loop().time
    end_s = now() + timeout_s
    while not is_true():
        if now() >= end_s:
            return False
        await asyncio.sleep(POLL_S)
    return True


def make_server(context: Context) -> "uvicorn.Server":
    """The HTTP server around the application. It leaves the signals to `Life`."""
    import uvicorn

    from octavo.api.app import build_app
    from octavo.api.protocol import BoundedHttp

    class Server(uvicorn.Server):
        def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
            return nullcontext()

    return Server(
        uvicorn.Config(
            build_app(context),
            http=BoundedHttp,
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            root_path=context.config.server.root_path,
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        )
    )
