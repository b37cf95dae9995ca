"""The address that a server answers on: bound first, so that a taken one is told before a model is
loaded; listening later, so that nobody is let in too early."""

import random
import socket
import time
from types import TracebackType

from octavo.errors import ConfigError

BACKLOG = 2048
TRIES = 4  # to listen


class Listener:
    """A bound socket; it refuses connections until `listen`. Raises ConfigError for the address."""

    def __init__(self, host: str, port: int) -> None:
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            self.socket = socket.socket(family, kind, protocol)
            try:
                # So that a server can follow another at once. It also lets two servers bind that
                # do not listen yet: `listen` tells the later one.
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.socket.bind(address)
            except OSError:
                self.socket.close()
                raise
        except OSError as error:
            raise self._failure(error) from error

    def listen(self) -> None:
        """Let connections in. Raises ConfigError when another server was faster."""
        for wait_s in (0.0, *(random.uniform(0.01, 0.1) for _ in range(TRIES - 1))):
            # Of two that listen in the same instant Linux may refuse both.
            time.sleep(wait_s)
            try:
                return self.socket.listen(BACKLOG)
            except OSError as error:
                failure = error
        raise self._failure(failure) from failure

    @property
    def url(self) -> str:
        """Where it can be reached, with the real port where 0 was asked for."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def __enter__(self) -> "Listener":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def _failure(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cannot listen on {self._where}: {error.strerror or error}; free the address or "
            "choose another --host or --port"
        )
