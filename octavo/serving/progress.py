"""How far a batch of prompts is: a bar on stderr, on a terminal or where it is asked for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

Progress = bool | Literal["always"]
Report = Callable[[int], None]  # called with the tokens of each prompt that is done


@contextmanager
def batch_progress(
    num_prompts: int, progress: Progress, stream: TextIO | None = None
) -> Iterator[Report]:
    """A bar while the block runs: prompts done, tokens and tokens per second.

    progress: True: where `stream` (stderr) is a terminal; "always": anywhere; False: never.
    """
    stream = stream or sys.stderr
    if not progress or (progress != "always" and not stream.isatty()):
        yield lambda num_tokens: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    rate = TextColumn("{task.fields[tokens]} tokens, {task.fields[rate]:.1f}/s")
    with Bar(*columns, TimeElapsedColumn(), rate, console=Console(file=stream)) as bar:
        task = bar.add_task("prompts", total=num_prompts, tokens=0, rate=0.0)
        total = 0

        def report(num_tokens: int) -> None:
            nonlocal total
            total += num_tokens
            elapsed_s = bar.tasks[0].elapsed or 0.0
            rate = total / elapsed_s if elapsed_s else 0.0
            bar.update(task, advance=1, tokens=total, rate=rate)

        yield report
