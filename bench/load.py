"""Two servers on one model in turns, under a load generator; medians, and their ratio.

    python bench/load.py LOADBENCH.py MODEL.gguf [--peer COMMAND] [--workload short,mixed]
        [--concurrency 1,16] [--requests N] [--api completions] [--runs 5] [-- octavo's flags]

LOADBENCH.py is a load generator with the command line and report of ours (see docs/benchmarks.md).
COMMAND starts the other server; {model} and {port} in it are filled in. Each run starts a server,
loads it, checks that /health answered all the while and that no request failed, and for Octavo
that every block of the KV cache is free again; then the other server has its turn.
"""

import argparse
import http.client
import json
import shlex
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from octavo.testing.server import HOST, ServerProcess
from octavo.weights.resolve import resolve_model

HEALTH_EVERY_S = 0.02
OURS, PEER = "octavo", "peer"
# Figure -> where it is in a level of the report.
FIGURES = {
    "output tokens/s": ("output_tok_per_s",),
    "TTFT p50 ms": ("ttft_ms", "p50"),
    "ITL p99 ms": ("itl_ms", "p99"),
    "TPOT p50 ms": ("tpot_ms", "p50"),
    "peak RSS MB": ("rss_peak_mb",),
}


class Health:
    """Asks /health again and again; `waits` are the seconds that each answer took."""

    def __init__(self, port: int) -> None:
        self.waits: list[float] = []
        self.failures = 0
        self._port = port
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._end.wait(HEALTH_EVERY_S):
            began = time.perf_counter()
            try:
                connection = http.client.HTTPConnection(HOST, self._port, timeout=30)
                connection.request("GET", "/health")
                self.failures += connection.getresponse().status != 200
                connection.close()
            except (OSError, http.client.HTTPException):
                self.failures += 1
            self.waits.append(time.perf_counter() - began)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Ask as long as this is open."""
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()

    def line(self) -> str:
        """p50, p99 and the longest."""
        waits = sorted(self.waits) or [float("nan")]
        p50, p99 = (1000 * waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))
        return (
            f"/health {len(waits)} times: p50 {p50:.1f}, p99 {p99:.1f}, max {1000 * waits[-1]:.1f}"
            f" ms, {self.failures} failed"
        )


def main() -> None:
    """Print every run, then a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loadbench", type=Path)
    parser.add_argument("model")
    parser.add_argument("--peer", help="command of the other server, with {model} and {port}")
    parser.add_argument("--api", default="completions")
    parser.add_argument("--workload", default="short,mixed")
    parser.add_argument("--concurrency", default="1,16")
    parser.add_argument("--requests", type=int, help="a level; the load generator's own by default")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("flags", nargs="*", help="of octavo serve, behind --")
    args = parser.parse_args()
    model = resolve_model(args.model)
    commands = {OURS: [sysconfig.get_path("scripts") + "/octavo", "serve", str(model), *args.flags]}
    if args.peer:
        commands[PEER] = shlex.split(args.peer.replace("{model}", str(model)))
    levels: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for run in range(args.runs):
        for name, command in commands.items():
            levels[name] += one_run(args, name, command, run)
    for key in dict.fromkeys(map(level_key, levels[OURS])):
        print_medians(key, levels)


def one_run(
    args: argparse.Namespace, name: str, command: list[str], run: int
) -> list[dict[str, Any]]:
    """Start, load and end a server; the levels of the report."""
    server = ServerProcess(command=command)
    try:
        server.wait_until_healthy(120)
        health = Health(server.port)
        with tempfile.TemporaryDirectory() as folder, health.watching():
            report = load(args, server, run, Path(folder, "report.json"))
        for level in report["levels"]:
            if level["errors"]:
                raise SystemExit(f"{name}: {level['errors']} requests failed: {level}")
            figures = ", ".join(f"{n} {figure(level, n)}" for n in FIGURES)
            print(f"run {run} {name:6} {level_key(level)}: {figures}", flush=True)
        print(f"run {run} {name:6} {health.line()}", flush=True)
        if health.failures or not health.waits:
            raise SystemExit(f"{name}: /health did not answer all the while")
        if name == OURS and (usage := cache_usage(server.port)):
            raise SystemExit(f"{name}: {usage:.2%} of the KV cache is in use without a request")
        if code := server.stop():
            raise SystemExit(f"{name}: ended with code {code}; its log:\n{server.log()}")
    finally:
        server.kill()
    return list(report["levels"])


def load(args: argparse.Namespace, server: ServerProcess, run: int, out: Path) -> dict[str, Any]:
    """Run the load generator; its report."""
    options = {
        "--base-url": server.url,
        "--pid": str(server.process.pid),
        "--api": args.api,
        "--workload": args.workload,
        "--concurrency": args.concurrency,
        "--salt": str(run),
        "--out": str(out),
    }
    if args.requests:
        options["--requests"] = str(args.requests)
    words = [word for option in options.items() for word in option]
    done = subprocess.run(
        [sys.executable, str(args.loadbench), *words], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"the load generator failed:\n{done.stdout}{done.stderr}")
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def cache_usage(port: int) -> float:
    """The share of KV cache blocks in use, of /metrics."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    (line,) = [x for x in text.splitlines() if "kv_cache_usage_perc{" in x]
    return float(line.rsplit(" ", 1)[1])


def level_key(level: dict[str, Any]) -> str:
    """Names a level."""
    return f"{level['api']} {level['workload']} x{level['concurrency']}"


def figure(level: dict[str, Any], name: str) -> float:
    """One figure of a level."""
    value: Any = level
    for key in FIGURES[name]:
        value = value[key]
    return float(value)


def print_medians(key: str, levels: dict[str, list[dict[str, Any]]]) -> None:
    """A line for each figure: the medians of both and their ratio."""
    print(f"\n{key}")
    for name in FIGURES:
        medians = {
            who: statistics.median(figure(x, name) for x in found if level_key(x) == key)
            for who, found in levels.items()
        }
        words = "   ".join(f"{who} {median:10.1f}" for who, median in medians.items())
        ratio = f"   ratio {medians[OURS] / medians[PEER]:.2f}" if PEER in medians else ""
        print(f"  {name:16} {words}{ratio}")


if __name__ == "__main__":
    main()
