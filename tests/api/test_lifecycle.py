"""The server as a process: ready, signals, drain, shutdown pipe, address in use."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from octavo.api.listener import Listener
from octavo.errors import ConfigError
from octavo.testing.server import HOST, ServerFailed, ServerProcess

SCRIPTED = (sys.executable, "-m", "octavo.testing.scripted")
READY_S = 60


class Scripted(ServerProcess):
    """`python -m octavo.testing.scripted` with a script that says `tick`."""

    def until_ready(self) -> "Scripted":
        self.wait_until_healthy(READY_S)
        return self

    def until(self, ready: Callable[[], object]) -> None:
        for _ in range(1500):
            if ready():
                return
            time.sleep(0.02)
        raise ServerFailed(f"waited too long; log:\n{self.log()}")

    def ask(self, stream: bool = False) -> HTTPResponse:
        connection = HTTPConnection(HOST, self.port, timeout=30)
        body = json.dumps({"prompt": "go", "max_tokens": -1, "stream": stream})
        connection.request("POST", "/v1/completions", body, {"Connection": "close"})
        return connection.getresponse()

    def metric(self, name: str) -> float:
        with closing(HTTPConnection(HOST, self.port, timeout=30)) as connection:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(name + "{")).split()[-1])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


Start = Callable[..., Scripted]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Scripted] = []

    def make(*flags: str, port: int | None = None, **script: Any) -> Scripted:
        path = tmp_path / f"script-{len(begun)}.json"
        path.write_text(json.dumps({"replies": [{"pieces": ["tick "] * 40}]} | script))
        flags = ("--script", str(path), *flags)
        begun.append(Scripted(*flags, command=SCRIPTED, port=port, folder=tmp_path))
        return begun[-1]

    yield make
    for one in begun:
        one.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_ends_with_0(start, number):
    server = start().until_ready()
    server.until(lambda: f"listening on {server.url}, model scripted" in server.log())
    with closing(server.ask()) as reply:
        assert reply.status == 200
    server.signal(number)
    assert server.wait() == 0
    assert "Traceback" not in server.log()


def test_drain_finishes_streams_and_refuses_new_ones(start):
    server = start(step_delay_ms=30).until_ready()
    with closing(server.ask(stream=True)) as running:
        assert b"tick" in running.readline()
        server.signal(signal.SIGTERM)
        server.until(lambda: "SIGTERM" in server.log())
        with closing(server.ask()) as refused:
            assert refused.status == 503
            assert refused.headers["Retry-After"]
        rest = running.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"finish_reason":"stop"' in rest
    assert server.wait() == 0


def test_drain_timeout_ends_streams_with_a_word(start):
    server = start("--drain-timeout", "0.2", step_delay_ms=100).until_ready()
    with closing(server.ask(stream=True)) as running:
        running.readline()
        server.signal(signal.SIGTERM)
        rest = running.read()
    assert b'"finish_reason":"abort"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert server.wait() == 0


def test_second_signal_ends_at_once(start):
    server = start("--drain-timeout", "60", step_delay_ms=500).until_ready()
    with closing(server.ask(stream=True)) as running:
        running.readline()
        server.signal(signal.SIGTERM)
        server.until(lambda: "SIGTERM" in server.log())
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert time.monotonic() - began < 10
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("stream", [True, False])
def test_second_signal_does_not_wait_for_a_step(start, stream):
    server = start("--drain-timeout", "60", step_delay_ms=60_000).until_ready()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    body = json.dumps({"prompt": "go", "max_tokens": -1, "stream": stream}).encode()
    with (
        socket.create_connection((HOST, server.port), timeout=30) as waiting,
        socket.create_connection((HOST, server.port), timeout=30) as half,
    ):
        half.sendall(head % 100 + b'{"prom')
        waiting.sendall(head % len(body) + body)
        server.until(lambda: server.metric("vllm:num_requests_running") == 1)
        server.signal(signal.SIGTERM)
        server.until(lambda: "SIGTERM" in server.log())
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        answer = waiting.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"finish_reason":"abort"' in answer
    assert "Traceback" not in server.log()
    assert "ERROR" not in server.log()


def heads(server: Scripted, *parts: bytes) -> bytes:
    """The answer to a head that comes in these parts, each when the server has read the others."""
    with socket.create_connection((HOST, server.port), timeout=30) as client:
        for part in parts:
            client.sendall(part)
            time.sleep(0.1)
        return client.makefile("rb").read()


def test_headers_are_bounded(start):
    server = start().until_ready()
    get, close = b"GET /health HTTP/1.1\r\nHost: x\r\n", b"Connection: close\r\n\r\n"
    chunked = b"POST /ping HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    small, long = b"A: %s\r\n" % (b"a" * 1000), b"a" * (2**16 - 500)
    assert heads(server, get + small * 60 + close).startswith(b"HTTP/1.1 200 ")
    for parts in (
        (get + small * 64, small * 2),
        (get + b"A: " + long, b"a" * 1000),  # never ends
        (b"GET /" + long, b"a" * 1000),
    ):
        head, _, body = heads(server, *parts).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert json.loads(body)["error"]["code"] == 431
    answer = heads(server, chunked + b"0\r\n", b"A: " + long, b"a" * 1000)
    assert b"HTTP/1.1 431 " in answer
    with closing(server.ask()) as reply:
        assert reply.status == 200, "large bodies and others are as before"
    assert server.stop() == 0
    assert "Traceback" not in server.log()


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
    assert server.wait() == 0


@pytest.mark.parametrize(
    ("written", "code"), [(b"Q", 0), (b"Q\n", 0), (b"x", 1), (b"xQ", 1), (b"\nQ", 1)]
)
def test_the_first_byte_of_a_shutdown_pipe_decides(start, tmp_path, written, code):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    flags = ("--benchmark-shutdown-fifo", str(pipe), "--cuda-profile-graph-replays", "1")
    server = start(*flags).until_ready()
    with pipe.open("wb", buffering=0) as end:
        end.write(written)
        assert server.wait() == code
    assert "[VT_BENCH_SHUTDOWN]" in server.log()


def test_a_signal_arms_a_trace_of_steps(start, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    flags = ["--benchmark-shutdown-fifo", str(tmp_path / "pipe")]
    flags += ["--cuda-profile-graph-replays", "5", "--cuda-profile-graph-batch", "1"]
    server = start(*flags).until_ready()
    server.signal(signal.SIGUSR2)
    server.until(lambda: "tracing 5 steps of 1 sequences" in server.log())
    assert server.ask().status == 200
    server.until(lambda: "traced 5 steps to" in server.log())
    (trace,) = tmp_path.glob("octavo-trace-*-1.json")
    events = json.loads(trace.read_text())["traceEvents"]
    assert [event["args"]["step"] for event in events] == [0, 1, 2, 3, 4]
    assert {event["args"]["detail"] for event in events} == {"1 sequences"}


def test_with_a_pipe_a_signal_is_no_good_end(start, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    flags = ("--benchmark-shutdown-fifo", str(pipe), "--cuda-profile-graph-replays", "1")
    server = start(*flags).until_ready()
    server.signal(signal.SIGTERM)
    assert server.wait() == 1


@pytest.mark.parametrize("made", [False, True])
def test_pipe_that_is_none(start, tmp_path, made):
    path = tmp_path / "pipe"
    if made:
        path.write_text("")
    server = start("--benchmark-shutdown-fifo", str(path), "--cuda-profile-graph-replays", "1")
    assert server.wait() == 1
    assert "server: fatal: --benchmark-shutdown-fifo" in server.log()


def test_half_a_body_does_not_hold_the_end(start):
    server = start("--drain-timeout", "0.2").until_ready()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
    with socket.create_connection((HOST, server.port), timeout=30) as client:
        client.sendall(head + b"Expect: 100-continue\r\n\r\n")
        answer = client.makefile("rb")
        assert answer.readline().startswith(b"HTTP/1.1 100 "), "the body is waited for"
        client.sendall(b'{"prom')
        server.signal(signal.SIGTERM)
        assert b"HTTP/1.1 503 " in answer.read()
    assert server.wait() == 0
    assert "Traceback" not in server.log()
    assert "ERROR" not in server.log()


def ends_well(program, sign, number):
    """Run the program; when the file `sign` is there, a signal must end it with 0."""
    server = Scripted(command=(sys.executable, "-c", program))
    try:
        server.until(sign.exists)
        server.signal(number)
        assert server.wait() == 0
        assert "Traceback" not in server.log()
    finally:
        server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_is_a_good_end(tmp_path, number):
    loading = tmp_path / "loading"
    program = f"""
import sys, time
from octavo.api.lifecycle import serve
from octavo.config import parse_args

def load(config):
    open({str(loading)!r}, "w").close()
    time.sleep(60)

sys.exit(serve(parse_args(["x", *sys.argv[1:]]), load))
"""
    ends_well(program, loading, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_not_lost_where_python_drops_exceptions(tmp_path, number):
    deleting, script = tmp_path / "deleting", tmp_path / "script.json"
    script.write_text('{"replies": [{"pieces": ["x"]}]}')
    program = f"""
import sys, time
from pathlib import Path
from octavo.api.lifecycle import serve
from octavo.config import parse_args
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script

class Deleted:
    def __del__(self):
        open({str(deleting)!r}, "w").close()
        time.sleep(60)

def load(config):
    sys.unraisablehook = lambda dropped: None
    Deleted()
    return load_scripted(config, Script.read(Path({str(script)!r})))

sys.exit(serve(parse_args(["x", *sys.argv[1:]]), load))
"""
    ends_well(program, deleting, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_up_weights_that_are_still_repacked(tmp_path, number):
    """The rest is loaded then, and the event loop runs."""
    waiting, script = tmp_path / "waiting", tmp_path / "script.json"
    script.write_text('{"replies": [{"pieces": ["x"]}]}')
    program = f"""
import sys, threading
from pathlib import Path
from octavo.api.lifecycle import serve
from octavo.config import parse_args
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script

def load(config):
    served = load_scripted(config, Script.read(Path({str(script)!r})))
    given_up = threading.Event()

    def wait_loaded():
        open({str(waiting)!r}, "w").close()
        given_up.wait(60)
        raise RuntimeError("the loading was given up")

    served.backend.wait_loaded, served.backend.stop_loading = wait_loaded, given_up.set
    return served

sys.exit(serve(parse_args(["x", *sys.argv[1:]]), load))
"""
    ends_well(program, waiting, number)


def test_two_servers_at_once_on_one_port(start):
    first = start()
    second = start(port=first.port)
    first.until(
        lambda: (
            None not in (first.process.poll(), second.process.poll())
            or any("listening on" in one.log() for one in (first, second))
        )
    )
    first.until(lambda: any(one.process.poll() is not None for one in (first, second)))
    loser, winner = (first, second) if first.process.poll() is not None else (second, first)
    assert loser.wait() == 1
    assert f"server: fatal: cannot listen on 127.0.0.1:{first.port}: " in loser.log()
    assert "listening on" not in loser.log()
    assert winner.until_ready().stop() == 0


def test_the_later_of_two_that_could_both_bind_is_refused():
    with Listener(HOST, 0) as first:
        port = int(first.url.rpartition(":")[2])
        with Listener(HOST, port) as second:
            first.listen()
            with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: "):
                second.listen()


def test_address_in_use(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start(port=port)
        assert server.wait() == 1
    lines = [line for line in server.log().splitlines() if "server: fatal:" in line]
    assert len(lines) == 1
    assert f"127.0.0.1:{port}" in lines[0]
