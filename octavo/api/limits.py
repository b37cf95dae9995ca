"""Reading request bodies that strangers send: bounded in size, plain JSON only, then a schema."""

import asyncio
import json
import logging
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from octavo.api.errors import schema_error, shown
from octavo.api.sse import ClientGone
from octavo.errors import BodyTooLarge, InvalidRequest, RequestTimeout
from octavo.serving.context import Context

BODY_PAUSE_S = 60.0  # between two parts of a body
LARGE_BYTES = 256 * 2**10  # bodies above are parsed on a worker thread

MAX_CONTAINERS = 2**17
_NO_MARKS = bytes(set(range(256)) - set(b'"[{'))

logger = logging.getLogger(__name__)
Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The raw body.

    Raises BodyTooLarge as soon as that is known, without reading on, and RequestTimeout.
    """
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise InvalidRequest(
            f"Content-Encoding {shown(encoding)} is not read here; send the body uncompressed"
        )
    too_large = BodyTooLarge(
        f"the body is larger than {max_bytes} bytes; shorten it or raise --max-body-bytes"
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout_at(now() + BODY_PAUSE_S) as patience:
            async for part in request.stream():
                patience.reschedule(now() + BODY_PAUSE_S)
                size += len(part)
                if size > max_bytes:
                    raise too_large
                parts.append(part)
    except ClientDisconnect:
        raise ClientGone from None
    except TimeoutError:
        raise RequestTimeout(
            f"no more of the body came for {BODY_PAUSE_S:g} s, after {size} bytes; send it again"
        ) from None
    return b"".join(parts)


def check_content_type(request: Request) -> None:
    """JSON in UTF-8, or no type at all. A page's form cannot post JSON from another origin."""
    given = request.headers.get("content-type")
    if given is None:
        return
    kind, *options = [part.strip().lower() for part in given.split(";")]
    charsets = [o.partition("=")[2].strip('"') for o in options if o.startswith("charset=")]
    if kind != "application/json" and not kind.endswith("+json"):
        raise InvalidRequest(f"Content-Type must be application/json (given: {shown(given)})")
    if any(charset not in ("utf-8", "utf8", "us-ascii") for charset in charsets):
        raise InvalidRequest(f"JSON is read in UTF-8 only (given: {shown(given)})")


def parse_json(data: bytes) -> object:
    """JSON text to a value. Raises InvalidRequest, also where it is nested too deeply.

    Decoding holds the interpreter's lock, so bodies of very many lists are refused before it.
    """
    if _num_containers(data) > MAX_CONTAINERS:
        raise InvalidRequest(
            f"the body has too many lists and objects; allowed: {MAX_CONTAINERS} together"
        )
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        if (path := _not_finite(data)) is not None:
            raise InvalidRequest(
                f"{path or 'the body'}: NaN and Infinity are no JSON; send a finite number",
                param=path or None,
            ) from None
        raise InvalidRequest(f"the body is not JSON: {error}") from None


def _num_containers(data: bytes) -> int:
    """Lists and objects of a JSON text; an upper bound where there are few."""
    rough = data.count(b"[") + data.count(b"{")
    if rough <= MAX_CONTAINERS:
        return rough
    # Without escaped quotes, what stands between an odd number of quotes is in a string, and two
    # quotes side by side change nothing.
    marks = data.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS)
    return sum(map(len, marks.replace(b'""', b"").split(b'"')[::2]))


def _not_finite(data: bytes) -> str | None:
    """The path of a NaN or Infinity, if that is what is wrong with the body."""
    if b"NaN" not in data and b"Infinity" not in data:
        return None
    try:
        value = json.loads(data)
        return _find_not_finite(value, "")
    except (ValueError, RecursionError):
        return None


def _find_not_finite(value: object, path: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if not isinstance(value, dict | list):
        return None
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in pairs:
        below = f"{path}.{key}" if path else str(key)
        if (found := _find_not_finite(child, below)) is not None:
            return found
    return None


def validate(schema: type[Body], value: object) -> Body:
    """A parsed body as the schema's value. Raises InvalidRequest naming the wrong fields."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object (given: {shown(value)})")
    try:
        body = schema.model_validate(value)
    except ValidationError as error:
        raise schema_error(error, value) from None
    if logger.isEnabledFor(logging.DEBUG) and (unknown := value.keys() - schema.model_fields):
        logger.debug("ignored unknown fields: %s", shown(sorted(unknown)))
    return body


async def read(
    context: Context, request: Request, schema: type[Body]
) -> tuple[Body, dict[str, Any]]:
    """A request's body as the schema's value, and as it was sent."""
    return await read_as(context, request, lambda _: schema)


async def read_as(
    context: Context, request: Request, choose: Callable[[object], type[Body]]
) -> tuple[Body, dict[str, Any]]:
    """As `read`, where the JSON value says which schema it is."""
    check_content_type(request)
    data = await read_body(request, context.config.server.max_body_bytes)

    def work() -> tuple[Body, dict[str, Any]]:
        raw = parse_json(data)
        body = validate(choose(raw), raw)
        assert isinstance(raw, dict)  # or it would not be valid
        return body, raw

    return await context.run(work) if len(data) > LARGE_BYTES else work()
