"""Strangers' strings on the terminal, and what comes in by standard input."""

import sys
from collections.abc import Sequence

from octavo.errors import ConfigError, UsageError


def escaped(text: str, limit: int | None = None) -> str:
    """Without characters that a terminal would act on: they are spelled `\\x1b`.

    limit: characters after which it is cut, with an ellipsis.
    """
    cut = text if limit is None or len(text) <= limit else text[:limit] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def escaped_lines(text: str) -> str:
    """As `escaped`, but lines stay lines, and tabs tabs."""
    return "\n".join("\t".join(map(escaped, line.split("\t"))) for line in text.split("\n"))


def table(rows: Sequence[tuple[str, ...]], right: Sequence[int] = ()) -> str:
    """The rows in columns; `right`: the numbers of those that stand at the right."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def size_in_words(size_bytes: int) -> str:
    """`98.4 MB`: decimal units, as disks have them."""
    size, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def read_stdin(what: str, needed: str) -> str:
    """Standard input without its last line break.

    what: is read, for messages. needed: the message of the UsageError where it is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(needed)
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} on standard input is no UTF-8: {error}") from None
