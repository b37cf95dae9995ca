"""JSON answers of the small routes."""

from typing import Any

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def json_reply(value: Any, status: int = 200) -> Response:
    """A msgspec value, or plain JSON values, as the body."""
    return Response(_encode(value), status, media_type="application/json")
