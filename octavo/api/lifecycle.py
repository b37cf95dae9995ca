"""The life of a server: bind → load → engine → listen → drain → stop, and its exit code.

SIGTERM and SIGINT: new requests get 503, running ones finish within the drain timeout, exit 0; a
second signal ends at once. With a shutdown pipe only its byte Q is a good end.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from octavo.api.fifo import ShutdownPipe
from octavo.config import Config
from octavo.engine.settings import EngineSettings
from octavo.errors import ConfigError
from octavo.serving.context import Context, make_context
from octavo.serving.loading import Served, load_served

SWITCH_INTERVAL_S = 0.0005  # so that no thread waits 5 ms for another
WORKER_THREADS = 4
POLL_S = 0.02
GIVE_UP_S = 2.0  # for answers that were told to end, after the drain
KEEP_ALIVE_S = 75

logger = logging.getLogger(__name__)


def serve(config: Config, load: Callable[[Config], Served] = load_served) -> int:
    """Serve until told to stop; the exit code. Raises ConfigError when it cannot start.

    load: makes the served model. Doubles pass their own.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with listening_socket(config.server.host, config.server.port) as listener:
        pipe = ShutdownPipe(config.trace.shutdown_fifo) if config.trace.shutdown_fifo else None
        served = load(config)
        settings = EngineSettings.derive(config, served.backend.cache_groups, served.model_len)
        if settings.max_model_len < served.model_len and not config.model.max_model_len:
            logger.info(
                "the model's length is fitted to the KV cache: %d of %d tokens",
                settings.max_model_len,
                served.model_len,
            )
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(config, served, settings, listener, pipe))


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; it refuses connections until the server listens. Raises ConfigError."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(
            f"cannot listen on {where}: {why}; free the address or choose another --host or --port"
        ) from error
    return bound


async def _run(
    config: Config,
    served: Served,
    settings: EngineSettings,
    listener: socket.socket,
    pipe: ShutdownPipe | None,
) -> int:
    with ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="octavo-worker") as workers:
        context = make_context(config, served, settings, workers)
        context.engine.start()
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        life = Life(context, pipe, f"http://{shown}:{port}")
        try:
            await life.listen(listener)
        finally:
            if not await context.engine.stop():
                logger.warning("a model step did not return in time; leaving without it")
        return life.exit_code


class Life:
    """From listening to the end."""

    def __init__(self, context: Context, pipe: ShutdownPipe | None, address: str) -> None:
        self._context = context
        self._pipe = pipe
        self._address = address
        self.exit_code = 0 if pipe is None else 1  # a pipe must be heard for a good end
        self._draining: asyncio.Task[None] | None = None
        self._num_traces = 0

    async def listen(self, listener: socket.socket) -> None:
        """Serve until drained."""
        import uvicorn

        from octavo.api.app import build_app

        server_options = self._context.config.server

        class Server(uvicorn.Server):
            """Leaves the signals to `Life`."""

            def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
                return nullcontext()

        self._server = Server(
            uvicorn.Config(
                build_app(self._context),
                http="httptools",
                loop="none",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                root_path=server_options.root_path,
                timeout_keep_alive=KEEP_ALIVE_S,
                backlog=2048,
            )
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.on_signal, signal.Signals(number).name)
        if self._pipe is not None:
            self._pipe.watch(loop, self.on_pipe)
        if self._context.config.trace.graph_replays:
            loop.add_signal_handler(signal.SIGUSR2, self.on_trace)
        announce = asyncio.create_task(self._announce())
        try:
            await self._server.serve(sockets=[listener])
        finally:
            announce.cancel()
            if self._pipe is not None:
                self._pipe.close()

    async def _announce(self) -> None:
        while not self._server.started:
            await asyncio.sleep(POLL_S)
        logger.info("listening on %s, model %s", self._address, self._context.served.name)

    def on_signal(self, name: str) -> None:
        """The first begins the drain, the second ends everything."""
        if self._draining is None:
            logger.info("%s: finishing what runs, taking nothing new", name)
            self.begin_drain()
        else:
            logger.warning("%s again: ending now", name)
            self._server.force_exit = True
            self._server.should_exit = True
            self._context.abort()

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
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        context, now = self._context, asyncio.get_running_loop().time
        end_s = now() + context.config.server.drain_timeout_s
        while context.active and now() < end_s:
            await asyncio.sleep(POLL_S)
        if context.active:
            logger.warning("the drain timeout is over: ending %d requests", len(context.active))
            context.abort()
            end_s = now() + GIVE_UP_S
            while context.active and now() < end_s:
                await asyncio.sleep(POLL_S)
            self._server.force_exit = bool(context.active)
        self._server.should_exit = True
