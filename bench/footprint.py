"""What Octavo costs before it works: start to ready, private memory, import time, install size.

    python bench/footprint.py [MODEL] [--backend NAME] [--repeat N]

Start and memory are of `octavo serve MODEL` on a warm file cache. Private memory is what the
process shares with nobody (Linux smaps_rollup: Private_Clean + Private_Dirty); beside it stands
what the project promises to stay within. A file that another process maps too counts as shared:
let nothing else run the model meanwhile. The install size is the sum of the files of the octavo
distribution and of all it requires, extras left out. MB are 10^6 bytes. It ends with 0 whether the
promises hold or not.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import octavo
from octavo.backends.native import NativeBackend
from octavo.config import config_from_keywords
from octavo.models.registry import build
from octavo.serving.loading import make_backend
from octavo.testing.server import ServerProcess, running_server
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.resolve import resolve_model

MB = 10**6
# The promises.
READY_S = 1.5
BESIDES_BYTES = 140 * MB  # private memory that is neither weights nor cache
IMPORT_S = 0.1
INSTALL_BYTES = 170 * MB


class AtReady(NamedTuple):
    """A server that has just become healthy.

    clean_bytes: of the private ones those that only mirror a file, which the system may take back.
    tokens: that it has computed, each of them cached.
    """

    seconds: float
    private_bytes: int
    clean_bytes: int
    tokens: int


class Held(NamedTuple):
    """What a backend holds of a model: its weights, and the cache of one token, in bytes."""

    backend: str
    weights: int
    kv_token: int


def main() -> None:
    """Print the four figures, each with its promise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--backend", choices=("auto", "reference", "native"), default="auto")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error(f"--repeat must be 1 or more, not {args.repeat}")
    # The first warms up.
    runs = [at_ready(args.model, args.backend) for _ in range(args.repeat + 1)][1:]
    ready_s = statistics.median(run.seconds for run in runs)
    every = ", ".join(f"{run.seconds:.2f}" for run in runs)  # for who mistrusts medians
    report("start to ready", f"{ready_s:.2f} s", f"< {READY_S} s", ready_s < READY_S)
    print(f"  median of {every}")
    report_memory(runs, held(args.model, args.backend))
    import_s = statistics.median(import_time() for _ in range(args.repeat))
    below = f"< {IMPORT_S * 1000:.0f} ms"
    report("import octavo", f"{import_s * 1000:.0f} ms", below, import_s < IMPORT_S)
    print("  above an empty interpreter")
    install = install_bytes("octavo")
    below = f"< {in_mb(INSTALL_BYTES)}"
    report("base install", in_mb(install), below, install < INSTALL_BYTES)
    print("  above an empty environment")


def report(name: str, value: str, promise: str, holds: bool) -> None:
    """A figure, and whether the promise about it holds."""
    print(f"{name:16} {value:>9}   promised {promise}: {'holds' if holds else 'does not hold'}")


def report_memory(runs: list[AtReady], model: Held) -> None:
    """Private memory beside the sum that is allowed."""
    private = statistics.median(run.private_bytes for run in runs)
    tokens = max(run.tokens for run in runs)
    allowed = model.weights + tokens * model.kv_token + BESIDES_BYTES
    clean = statistics.median(run.clean_bytes for run in runs)
    report("private memory", in_mb(private), f"<= {in_mb(allowed)}", private <= allowed)
    print(f"  {in_mb(clean)} of it are unchanged pages of files; promised is the sum of:")
    print(f"  {in_mb(model.weights):>9}  weights as the {model.backend} backend holds them")
    print(f"  {in_mb(tokens * model.kv_token):>9}  touched KV: {tokens} tokens have been computed")
    print(f"  {in_mb(BESIDES_BYTES):>9}  everything else")


def in_mb(size_bytes: float) -> str:
    """For people."""
    return f"{size_bytes / MB:.1f} MB"


def at_ready(model: str, backend: str) -> AtReady:
    """Start a server, wait for its first healthy answer, look at it, and end it."""
    began = time.monotonic()
    with running_server(model, "--backend", backend) as server:
        seconds = time.monotonic() - began
        clean, dirty = private_bytes(server.process.pid)  # before /metrics is asked: it takes some
        return AtReady(seconds, clean + dirty, clean, computed_tokens(server))


def private_bytes(pid: int) -> tuple[int, int]:
    """Memory that no other process shares, in bytes: clean pages, and dirty ones."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    kib = dict(re.findall(r"^Private_(Clean|Dirty): +(\d+) kB", text, re.MULTILINE))
    return 1024 * int(kib["Clean"]), 1024 * int(kib["Dirty"])


def computed_tokens(server: ServerProcess) -> int:
    """Tokens of all steps so far, as the server counts them."""
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        text = answer.read().decode()
    found = re.search(r"^vllm:iteration_tokens_total_sum\S* (\S+)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit("/metrics does not tell the tokens of steps (iteration_tokens_total)")
    return int(float(found[1]))


def held(model: str, backend: str) -> Held:
    """Load the model here to see what it takes."""
    config = config_from_keywords({"model": model, "backend": backend})
    with open_checkpoint(resolve_model(model)) as checkpoint:
        built = build(checkpoint)
        made = make_backend(config, built, checkpoint, built.config.vocab_size)
    made.wait_loaded()
    kv_token = sum(group.bytes_per_token for group in made.cache_groups)
    if isinstance(made, NativeBackend):
        return Held(made.name, made.weight_bytes, kv_token)
    shapes = built.program.weights.values()  # the reference backend holds float32
    return Held(made.name, 4 * sum(map(math.prod, shapes)), kv_token)


def import_time() -> float:
    """Seconds that `import octavo` takes, measured inside a fresh interpreter."""
    script = "import time; t = time.perf_counter(); import octavo; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    return float(done.stdout)


def install_bytes(name: str) -> int:
    """Bytes of a distribution's files and of those of all that it requires."""
    listed = sum(
        path.stat().st_size
        for distribution in required(name)
        for file in metadata.files(distribution) or ()
        if (path := Path(str(file.locate()))).is_file()
    )
    return listed + unlisted_bytes(name)


def unlisted_bytes(name: str) -> int:
    """An editable install does not list our own sources, which a real one would have."""
    origin = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return 0
    package = Path(octavo.__file__).parent
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())


def required(name: str) -> Iterator[str]:
    """The distribution and its requirements, transitively, without extras."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        this = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if this in seen:
            continue
        seen.add(this)
        try:
            needs = metadata.requires(this) or []
        except metadata.PackageNotFoundError:
            continue  # a requirement of another platform
        yield this
        for need in needs:
            if "extra ==" not in need:
                waiting.append(re.split(r"[^\w.-]", need, maxsplit=1)[0])


if __name__ == "__main__":
    main()
