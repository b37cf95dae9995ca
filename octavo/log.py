"""Logging for the command line: one line per record on stderr, coloured only on a terminal.

Rooms use `logging.getLogger(__name__)`. The text of prompts and answers is never logged above
debug, unless --enable-log-outputs asks for the answers.
"""

import logging
import sys
from typing import TextIO

_COLOURS = {"WARNING": "\033[33m", "ERROR": "\033[31m", "CRITICAL": "\033[31m", "DEBUG": "\033[2m"}


def setup_logging(verbose: bool = False, stream: TextIO | None = None) -> None:
    """Send the records of this process to `stream` (stderr), ours from info or debug up.

    Other libraries' records are shown from warning up. A second call replaces the first; handlers
    of others stay.
    """
    stream = stream or sys.stderr
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, _OurHandler)]:
        root.removeHandler(earlier)
    handler = _OurHandler(stream)
    handler.setFormatter(LineFormatter(colour=stream.isatty(), tracebacks=verbose))
    root.addHandler(handler)
    logging.getLogger("octavo").setLevel(logging.DEBUG if verbose else logging.INFO)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters of a text that is to be logged, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more)"


class _OurHandler(logging.StreamHandler[TextIO]):
    """Known by its class, so that a second setup finds it."""


class LineFormatter(logging.Formatter):
    """`12:30:01 INFO octavo.api: message`, line breaks escaped so that a record is one line.

    tracebacks: show them in full (several lines); else an exception is its type and message.
    """

    def __init__(self, *, colour: bool = False, tracebacks: bool = False) -> None:
        super().__init__(datefmt="%H:%M:%S")
        self.colour = colour
        self.tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            message += f" ({type(error).__name__}: {error})"
        message = message.replace("\r", "\\r").replace("\n", "\\n")
        level = record.levelname
        if self.colour and level in _COLOURS:
            level = f"{_COLOURS[level]}{level}\033[0m"
        line = f"{self.formatTime(record, self.datefmt)} {level} {record.name}: {message}"
        if error is not None and self.tracebacks and record.exc_info is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line
