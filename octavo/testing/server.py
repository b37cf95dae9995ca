"""Runs a server command as a process of its own, for tests that speak HTTP to it."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

HOST = "127.0.0.1"
POLL_S = 0.05
STOP_TIMEOUT_S = 30.0
LOG_SHOWN_BYTES = 4000


class ServerFailed(RuntimeError):
    """The process did not start, did not get ready or did not end well; the text has its log."""


class ServerProcess:
    """A server that answers on `url` (no trailing slash), or will. `kill` it at the end."""

    def __init__(
        self,
        *arguments: str,
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start `octavo serve` with these arguments; returns at once.

        command: run instead of the installed `octavo serve`; where it says {port} it gets the
        port, else --host and --port are added. env: variables to set on top of ours. port: None:
        a free one. folder: where it runs.
        """
        self.port = free_port() if port is None else port
        self.url = f"http://{HOST}:{self.port}"
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `kill`
        command = command or (str(Path(sysconfig.get_path("scripts"), "octavo")), "serve")
        words = [*command, *arguments]
        placed = [word.replace("{port}", str(self.port)) for word in words]
        self.process = subprocess.Popen(
            placed if placed != words else [*words, "--host", HOST, "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=folder,
        )

    def log(self) -> str:
        """The end of what the process wrote."""
        # `pread`, since the process writes where this file stands.
        number = self._log.fileno()
        start = max(0, os.fstat(number).st_size - LOG_SHOWN_BYTES)
        return os.pread(number, LOG_SHOWN_BYTES, start).decode("utf-8", "replace")

    def is_healthy(self) -> bool:
        """Does GET /health say 200?"""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_until_healthy(self, timeout_s: float) -> None:
        """Raises ServerFailed when the process ends or the time is over before."""
        end_s = time.monotonic() + timeout_s
        while not self.is_healthy():
            if (code := self.process.poll()) is not None:
                raise ServerFailed(f"ended with code {code}; its log:\n{self.log()}")
            if time.monotonic() > end_s:
                raise ServerFailed(f"not ready after {timeout_s:g} s; its log:\n{self.log()}")
            time.sleep(POLL_S)

    def stop(self) -> int:
        """SIGTERM, and the exit code. Raises ServerFailed when the process does not end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit code of a process that is told to end. Raises ServerFailed when it does not."""
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            message = f"still running after {STOP_TIMEOUT_S:g} s; its log:\n{self.log()}"
            raise ServerFailed(message) from None

    def kill(self) -> None:
        """End it whatever it does; nothing can be asked of it any more."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextlib.contextmanager
def running_server(
    *arguments: str,
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> Iterator[ServerProcess]:
    """`octavo serve` with these arguments on a free port, from the first good /health to SIGTERM.

    command, env: as in `ServerProcess`. timeout_s: how long the start may take. Raises
    ServerFailed, also when the process does not end with code 0.
    """
    server = ServerProcess(*arguments, command=command, env=env)
    try:
        server.wait_until_healthy(timeout_s)
        yield server
        if code := server.stop():
            raise ServerFailed(f"ended with code {code}; its log:\n{server.log()}")
    finally:
        server.kill()


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
