"""API keys: paths that begin with /v1 need one of them, when there are any."""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.api.errors import error_response
from octavo.api.middleware import route_path
from octavo.errors import Unauthorized

GUARDED = "/v1"


class RequireKey:
    """ASGI middleware. Keys are compared in constant time, and always with all of them."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [
            hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest() for key in keys
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and route_path(scope).startswith(GUARDED)
        if guarded and not self._accepts(Headers(scope=scope)):
            given = "authorization" in Headers(scope=scope)
            why = "the API key is wrong" if given else "this server needs an API key"
            refusal = Unauthorized(f"{why}; send the header `Authorization: Bearer KEY`")
            await error_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _accepts(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(key.strip().encode("latin-1")).digest()  # the bytes as they came
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(matches)
