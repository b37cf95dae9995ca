"""The named pipe that ends a benchmark: one byte says how."""

import asyncio
import os
import stat
from collections.abc import Callable

from octavo.errors import ConfigError


class ShutdownPipe:
    """An existing named pipe. Raises ConfigError when it cannot be opened as one."""

    def __init__(self, path: str) -> None:
        try:
            # Also open for writing, so that a writer that leaves does not end the reading.
            self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"--benchmark-shutdown-fifo {path}: {error.strerror}; make it with mkfifo"
            ) from error
        if not stat.S_ISFIFO(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise ConfigError(
                f"--benchmark-shutdown-fifo {path} is no named pipe; make it with mkfifo"
            )
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, loop: asyncio.AbstractEventLoop, on_byte: Callable[[bytes], None]) -> None:
        """Call back with the first byte that is written; what follows it says nothing."""
        self._loop = loop
        loop.add_reader(self._fd, self._read, on_byte)

    def _read(self, on_byte: Callable[[bytes], None]) -> None:
        try:
            byte = os.read(self._fd, 1)
        except BlockingIOError:
            return
        self._stop_watching()  # `echo Q` also writes a newline
        on_byte(byte)

    def close(self) -> None:
        """Stop watching."""
        self._stop_watching()
        os.close(self._fd)

    def _stop_watching(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None
