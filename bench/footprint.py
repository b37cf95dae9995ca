"""What Octavo costs before it works: start to ready, private memory, import time, install size.

    python bench/footprint.py [MODEL] [--repeat N]

Start and memory are of `octavo serve MODEL` on a warm file cache. Private memory is what the
process shares with nobody (Linux smaps_rollup: Private_Clean + Private_Dirty). The install size is
the sum of the files of the octavo distribution and of all it requires, extras left out.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from octavo.testing.server import running_server

MIB = 1 << 20


def main() -> None:
    """Print the four figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    runs = [ready_and_memory(args.model) for _ in range(args.repeat + 1)][1:]  # the first warms up
    ready = [seconds for seconds, _ in runs]
    print(f"start to ready   {statistics.median(ready):.2f} s (median of {ready_list(ready)})")
    print(f"private memory   {statistics.median(m for _, m in runs) / MIB:.0f} MiB at ready")
    imports = [import_time() for _ in range(args.repeat)]
    print(f"import octavo    {statistics.median(imports) * 1000:.0f} ms above an empty interpreter")
    print(f"base install     {install_bytes('octavo') / MIB:.0f} MiB")


def ready_list(values: list[float]) -> str:
    """All values, for the reader who mistrusts medians."""
    return ", ".join(f"{value:.2f}" for value in values)


def ready_and_memory(model: str) -> tuple[float, float]:
    """(seconds from exec to the first healthy answer, private bytes then)."""
    began = time.monotonic()
    with running_server(model) as server:
        seconds = time.monotonic() - began
        return seconds, private_bytes(server.process.pid)


def private_bytes(pid: int) -> int:
    """Memory that no other process shares, in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return 1024 * sum(int(kib) for kib in re.findall(r"Private_(?:Clean|Dirty): +(\d+) kB", text))


def import_time() -> float:
    """Seconds that `import octavo` takes, measured inside a fresh interpreter."""
    script = "import time; t = time.perf_counter(); import octavo; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    return float(done.stdout)


def install_bytes(name: str) -> int:
    """Bytes of a distribution's files and of those of all that it requires."""
    return sum(
        path.stat().st_size
        for distribution in required(name)
        for file in metadata.files(distribution) or ()
        if (path := Path(str(file.locate()))).is_file()
    )


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
