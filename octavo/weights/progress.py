"""Progress of a download on stderr: a bar on a terminal, a few plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Report = Callable[[int], None]  # called with the bytes that are there so far

_STEPS = 4  # plain lines for a whole download, beside the first


@contextmanager
def download_progress(
    title: str, total_bytes: int, *, quiet: bool = False, stream: TextIO | None = None
) -> Iterator[Report]:
    """Show how far a download of about `total_bytes` is while the block runs."""
    stream = stream or sys.stderr
    if quiet:
        yield lambda done: None
    elif stream.isatty():
        with _bar(title, total_bytes, stream) as report:
            yield report
    else:
        yield _plain_lines(title, total_bytes, stream)


@contextmanager
def _bar(title: str, total_bytes: int, stream: TextIO) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=Console(file=stream)) as progress:
        task = progress.add_task(title, total=total_bytes)

        def report(done: int) -> None:
            progress.update(task, completed=min(done, total_bytes))

        yield report


def _plain_lines(title: str, total_bytes: int, stream: TextIO) -> Report:
    shown = 0
    print(f"{title}: {_megabytes(total_bytes)}", file=stream, flush=True)

    def report(done: int) -> None:
        nonlocal shown
        step = min(done, total_bytes) * _STEPS // max(total_bytes, 1)
        if step > shown:
            shown = step
            print(f"{title}: {100 * step // _STEPS} %", file=stream, flush=True)

    return report


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
