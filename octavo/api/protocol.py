"""HTTP/1.1 as uvicorn speaks it, but what is no body is bounded: the parser below keeps headers of
any size in memory, before anybody has asked for a key.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from octavo.api.errors import ErrorBody, error_info
from octavo.errors import HeadersTooLarge

MAX_HEAD_BYTES = 64 * 2**10


class BoundedHttp(HttpToolsProtocol):
    """Answers 431 and closes when a request's line and headers, or a body's trailers, get too long.

    Counted are whole headers, and bytes received since the last sign of anything else: a header is
    told only when it is whole.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._silent_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._silent_bytes += len(data)
        super().data_received(data)
        if self._silent_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._silent_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser calls for every error, ours in `_count` too."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("stops the parser")

    def _refuse(self) -> None:
        error = HeadersTooLarge(
            f"the request's line and headers are larger than {MAX_HEAD_BYTES} bytes; shorten them"
        )
        body = msgspec.json.encode(ErrorBody(error_info(error)))
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
