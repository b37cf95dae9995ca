"""What every request passes: its id, the door that closes in a drain, the net under all handlers.

Plain ASGI: nothing here waits for a response or holds one back.
"""

import asyncio
import re
import secrets
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.api.errors import as_request_error, error_response
from octavo.api.sse import ClientGone
from octavo.errors import RequestError

REQUEST_ID = "x-request-id"
ALWAYS_OPEN = frozenset({"/health", "/ping", "/metrics"})  # answered while draining too
_PLAIN_ID = re.compile(r"[\x21-\x7e]{1,256}")


def route_path(scope: Scope) -> str:
    """The path as the routes know it, without the prefix under which a proxy serves us."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class RequestIds:
    """Every answer has X-Request-Id: the client's, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _PLAIN_ID.fullmatch(given) else secrets.token_hex(16)
        header = (REQUEST_ID.encode(), request_id.encode("latin-1"))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        await self._app(scope, receive, send_with_id)


class Door:
    """Refuses requests while `why_closed` has a reason, before their bodies are read."""

    def __init__(self, app: ASGIApp, why_closed: Callable[[], RequestError | None]) -> None:
        self._app = app
        self._why_closed = why_closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and route_path(scope) not in ALWAYS_OPEN:
            reason = self._why_closed()
            if reason is not None:
                await error_response(reason)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Net:
    """Turns what a handler did not catch into an error body, if the answer has not begun.

    A request that is cancelled while `why_closed` has a reason gets that for an answer.
    """

    def __init__(self, app: ASGIApp, why_closed: Callable[[], RequestError | None]) -> None:
        self._app = app
        self._why_closed = why_closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def watched(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientGone:
            if not began:
                # Nobody reads it; it tells the server that this request is over.
                await send({"type": "http.response.start", "status": 499, "headers": []})
                await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            reason = self._why_closed()
            if reason is None:
                raise
            if not began and scope["type"] == "http":
                await error_response(reason)(scope, receive, send)
        except Exception as error:
            answer = error_response(as_request_error(error))
            if began or scope["type"] != "http":
                raise
            await answer(scope, receive, send)
