"""The server as a process: ready, signals, drain, shutdown pipe, address in use."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest


class Process:
    """`python -m octavo.testing.scripted` on a free port; what it says is in `log`."""

    def __init__(self, folder: Path, *flags: str, port: int | None = None, **script: Any) -> None:
        replies = [{"pieces": ["tick "] * 40}]
        (folder / "script.json").write_text(json.dumps({"replies": replies} | script))
        self.port = free_port() if port is None else port
        self._log = folder / "log"
        command = [sys.executable, "-m", "octavo.testing.scripted", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--script", str(folder / "script.json"), *flags]
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=folder
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, ready: Callable[[], object]) -> None:
        for _ in range(1500):
            if ready():
                return
            time.sleep(0.02)
        raise AssertionError(f"waited too long; log:\n{self.log}")

    def until_ready(self) -> "Process":
        self.until(lambda: "listening on" in self.log or self.process.poll() is not None)
        assert self.process.poll() is None, self.log
        return self

    def ask(self, stream: bool = False) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        body = json.dumps({"prompt": "go", "max_tokens": -1, "stream": stream})
        connection.request("POST", "/v1/completions", body, {"Connection": "close"})
        return connection.getresponse()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(20)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Process] = []

    def make(*flags: str, **kw: Any) -> Process:
        begun.append(Process(tmp_path, *flags, **kw))
        return begun[-1]

    yield make
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_ends_with_0(start, number):
    server = start().until_ready()
    assert f"http://127.0.0.1:{server.port}, model scripted" in server.log
    with closing(server.ask()) as reply:
        assert reply.status == 200
    server.signal(number)
    assert server.end() == 0
    assert "Traceback" not in server.log


def test_drain_finishes_streams_and_refuses_new_ones(start):
    server = start(step_delay_ms=30).until_ready()
    with closing(server.ask(stream=True)) as running:
        assert b"tick" in running.readline()
        server.signal(signal.SIGTERM)
        server.until(lambda: "SIGTERM" in server.log)
        with closing(server.ask()) as refused:
            assert refused.status == 503
            assert refused.headers["Retry-After"]
        rest = running.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"finish_reason":"stop"' in rest
    assert server.end() == 0


def test_drain_timeout_ends_streams_with_a_word(start):
    server = start("--drain-timeout", "0.2", step_delay_ms=100).until_ready()
    with closing(server.ask(stream=True)) as running:
        running.readline()
        server.signal(signal.SIGTERM)
        rest = running.read()
    assert b'"finish_reason":"abort"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert server.end() == 0


def test_second_signal_ends_at_once(start):
    server = start("--drain-timeout", "60", step_delay_ms=500).until_ready()
    with closing(server.ask(stream=True)) as running:
        running.readline()
        server.signal(signal.SIGTERM)
        server.until(lambda: "SIGTERM" in server.log)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        server.end()
    assert time.monotonic() - began < 10


def test_closed_socket_ends_the_request(start):
    server = start(step_delay_ms=20).until_ready()
    reply = server.ask(stream=True)
    reply.readline()
    reply.close()

    def running() -> str:
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return next(line for line in text.splitlines() if line.startswith("vllm:num_requests_run"))

    server.until(lambda: running().endswith(" 0.0"))
    server.signal(signal.SIGTERM)
    assert server.end() == 0


@pytest.mark.parametrize(("byte", "code"), [(b"Q", 0), (b"x", 1)])
def test_shutdown_pipe(start, tmp_path, byte, code):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    flags = ("--benchmark-shutdown-fifo", str(pipe), "--cuda-profile-graph-replays", "1")
    server = start(*flags).until_ready()
    with pipe.open("wb", buffering=0) as end:
        end.write(byte)
        assert server.end() == code
    assert "[VT_BENCH_SHUTDOWN]" in server.log


def test_a_signal_arms_a_trace_of_steps(start, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    flags = ["--benchmark-shutdown-fifo", str(tmp_path / "pipe")]
    flags += ["--cuda-profile-graph-replays", "5", "--cuda-profile-graph-batch", "1"]
    server = start(*flags).until_ready()
    server.signal(signal.SIGUSR2)
    server.until(lambda: "tracing 5 steps of 1 sequences" in server.log)
    assert server.ask().status == 200
    server.until(lambda: "traced 5 steps to" in server.log)
    (trace,) = tmp_path.glob("octavo-trace-*-1.json")
    assert "traceEvents" in json.loads(trace.read_text())


def test_with_a_pipe_a_signal_is_no_good_end(start, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    flags = ("--benchmark-shutdown-fifo", str(pipe), "--cuda-profile-graph-replays", "1")
    server = start(*flags).until_ready()
    server.signal(signal.SIGTERM)
    assert server.end() == 1


@pytest.mark.parametrize("made", [False, True])
def test_pipe_that_is_none(start, tmp_path, made):
    path = tmp_path / "pipe"
    if made:
        path.write_text("")
    server = start("--benchmark-shutdown-fifo", str(path), "--cuda-profile-graph-replays", "1")
    assert server.end() == 1
    assert "server: fatal: --benchmark-shutdown-fifo" in server.log


def test_address_in_use(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start(port=port)
        assert server.end() == 1
    lines = [line for line in server.log.splitlines() if "server: fatal:" in line]
    assert len(lines) == 1
    assert f"127.0.0.1:{port}" in lines[0]
