"""API keys: paths that begin with /v1 need one of them, when there are any."""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.api.errors import error_response
from octavo.errors import Unauthorized

GUARDED = "/v1"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class RequireKey:
    """ASGI middleware. Keys are compared in constant time, and always with all of them."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and _is_guarded(scope)
            and not self._accepts(Headers(scope=scope))
        ):
            refusal = Unauthorized(
                "this server needs an API key; send the header `Authorization: Bearer KEY`"
            )
            await error_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _accepts(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = _digest(key.strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def _is_guarded(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.startswith(GUARDED)
