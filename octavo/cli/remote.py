"""Answers of a running server, Octavo or another with the OpenAI API: HTTP and event streams."""

import http.client
import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from octavo.cli.ask import Piece
from octavo.errors import RequestError, UsageError

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 600.0  # a long prompt on a slow machine
SHOWN_CHARS = 500
DONE = "[DONE]"


def event_data(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of each server-sent event (HTML Living Standard, 9.2). Comments are passed over."""
    data: list[str] = []
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text and data:
            yield "\n".join(data)
            data = []
        name, _, value = text.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
    # An event without its blank line was cut off; it is none.


class Exchange(NamedTuple):
    """An answer whose body is still to be read."""

    connection: http.client.HTTPConnection
    sock: socket.socket
    response: http.client.HTTPResponse

    def close(self) -> None:
        """Let go of the connection."""
        self.response.close()
        self.connection.close()


class ServerAnswer:
    """Implements `ask.Answer`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._closed = False

    def __iter__(self) -> Iterator[Piece]:
        ended = False
        try:
            for data in event_data(self._exchange.response):
                if data == DONE:
                    ended = True
                    break
                for piece in pieces_of(data):
                    ended = ended or piece.finish_reason is not None
                    yield piece
        except (OSError, http.client.HTTPException):
            ended = False
        finally:
            self._exchange.close()
        if not ended and not self._closed:
            raise RequestError("the connection to the server broke off within the answer")

    def close(self) -> None:
        """Wakes a read that waits; the iteration then closes the connection."""
        self._closed = True
        with suppress(OSError):
            self._exchange.sock.shutdown(socket.SHUT_RDWR)


def pieces_of(data: str) -> Iterator[Piece]:
    """The texts of one frame. Raises RequestError for a frame that is an error, or none at all."""
    try:
        frame = json.loads(data)
        if "error" in frame:
            raise RequestError(f"the server says: {_message(frame)}")
        for choice in frame["choices"]:
            text = choice["delta"].get("content") if "delta" in choice else choice["text"]
            yield Piece(text or "", choice.get("finish_reason"))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RequestError(
            f"the server sent what is no frame of an answer: {data[:SHOWN_CHARS]!r}"
        ) from None


class ServerSource:
    """Implements `ask.Source`."""

    def __init__(self, url: str, api_key: str | None, model: str | None) -> None:
        """Reach the server. model: its name there, None: the first that the server lists.

        Raises UsageError for a wrong address, RequestError for a server that is not there.
        """
        self.where = url
        self._api_key = api_key
        try:
            parts = urlsplit(url)
            self._address = (parts.hostname or "", parts.port)
        except ValueError as error:
            raise UsageError(f"--url {url}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise UsageError(f"--url must be like http://127.0.0.1:8000, not {url!r}")
        self._is_secure = parts.scheme == "https"
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        names = self._models()
        if model is None and not names:
            raise RequestError(f"the server at {url} lists no model; name one as MODEL")
        self.name = model or names[0]

    def chat(
        self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]
    ) -> ServerAnswer:
        return self._ask("/v1/chat/completions", {"messages": list(messages), **params})

    def complete(self, prompt: str, params: Mapping[str, Any]) -> ServerAnswer:
        return self._ask("/v1/completions", {"prompt": prompt, **params})

    def __enter__(self) -> "ServerSource":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open between answers."""

    # ------------------------------------------------------------------ inside

    def _ask(self, path: str, body: dict[str, Any]) -> ServerAnswer:
        body |= {"model": self.name, "stream": True}
        return ServerAnswer(self._send("POST", path, json.dumps(body).encode()))

    def _models(self) -> list[str]:
        exchange = self._send("GET", "/v1/models")
        try:
            return [str(model["id"]) for model in json.loads(exchange.response.read())["data"]]
        except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
            raise RequestError(f"{self.where} answers, but not with the OpenAI API") from None
        finally:
            exchange.close()

    def _send(self, method: str, path: str, body: bytes | None = None) -> Exchange:
        """Send a request. Raises RequestError unless the answer is a good one."""
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(*self._address, timeout=CONNECT_TIMEOUT_S)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            connection.connect()
            sock: socket.socket = connection.sock
            sock.settimeout(SILENCE_TIMEOUT_S)
            connection.request(method, self._base + path, body, headers)
            response = connection.getresponse()
            if response.status != 200:
                raise _refusal(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RequestError(
                f"cannot reach {self.where}: {error}; does the server run there?"
            ) from error
        except BaseException:
            connection.close()
            raise
        return Exchange(connection, sock, response)


def _refusal(response: http.client.HTTPResponse) -> RequestError:
    """What an answer that is no success says."""
    raw = response.read(64 * 1024)
    response.close()
    try:
        message = _message(json.loads(raw))
    except (ValueError, TypeError, KeyError, AttributeError):
        message = raw[:SHOWN_CHARS].decode("utf-8", "replace") or response.reason
    return RequestError(f"the server answers {response.status}: {message}")


def _message(body: Any) -> str:
    error = body["error"]
    return str(error["message"] if isinstance(error, dict) else error)
