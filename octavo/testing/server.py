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
    """A server that answers on `url` (no trailing slash)."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: BinaryIO) -> None:
        self.process = process
        self.url = f"http://{HOST}:{port}"
        self._port = port
        self._log = log

    def log(self) -> str:
        """The end of what the process wrote."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_SHOWN_BYTES))
        return self._log.read().decode("utf-8", "replace")

    def is_healthy(self) -> bool:
        """Does GET /health say 200?"""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=5)
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
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            message = f"still running {STOP_TIMEOUT_S:g} s after SIGTERM; its log:\n{self.log()}"
            raise ServerFailed(message) from None

    def kill(self) -> None:
        """End it whatever it does."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running_server(
    *arguments: str,
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> Iterator[ServerProcess]:
    """`octavo serve` with these arguments on a free port, from the first good /health to SIGTERM.

    command: run instead of the installed `octavo serve`. env: variables to set on top of ours.
    timeout_s: how long the start may take. Raises ServerFailed, also when the process does not end
    with code 0.
    """
    port = free_port()
    command = command or (str(Path(sysconfig.get_path("scripts"), "octavo")), "serve")
    argv = [*command, *arguments, "--host", HOST, "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        server = ServerProcess(process, port, log)
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
