"""Exceptions to error bodies: `{"error": {"message", "type", "param", "code"}}`.

A body tells a stranger what to change and nothing about the inside: no paths, type names or
tracebacks, at most ten errors of a schema, and a given value cut to 200 characters.
"""

import logging
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import EngineFailure, InvalidRequest, MethodNotAllowed, NotFound, RequestError

MAX_ERRORS = 10
MAX_VALUE_CHARS = 200
MAX_MESSAGE_CHARS = 4000

logger = logging.getLogger(__name__)


class ErrorInfo(msgspec.Struct):
    """The object under `error`."""

    message: str
    type: str
    param: str | None
    code: str | int


class ErrorBody(msgspec.Struct):
    """The body of every answer that is no success."""

    error: ErrorInfo


def error_info(error: RequestError) -> ErrorInfo:
    """What a client is told of a failed request."""
    return ErrorInfo(str(error)[:MAX_MESSAGE_CHARS], error.type, error.param, error.code)


def error_response(error: RequestError) -> Response:
    """The whole answer, with `Retry-After` where there is a time to wait."""
    body = msgspec.json.encode(ErrorBody(error_info(error)))
    headers = {}
    if (wait_s := getattr(error, "retry_after_s", None)) is not None:
        headers["Retry-After"] = str(wait_s)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status == 408:
        headers["Connection"] = "close"  # the rest of the body may still come, and is no request
    return Response(body, error.status, headers, "application/json")


def as_request_error(error: Exception) -> RequestError:
    """Any exception as one that may be shown; what nobody expected is logged and becomes a 500."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RecursionError):
        return InvalidRequest("the body is nested too deeply")
    logger.error("a request failed unexpectedly", exc_info=error)
    return EngineFailure("the server failed while it handled this request; its log says why")


async def on_request_error(_: Request, error: Exception) -> Response:
    """Starlette's hook for our own errors."""
    return error_response(as_request_error(error))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, in our form."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    method, path = request.method[:16], request.url.path[:MAX_VALUE_CHARS]
    if status == 405:
        answer = error_response(MethodNotAllowed(f"{path} does not answer {method}"))
        if isinstance(error, HTTPException) and error.headers:
            answer.headers["Allow"] = error.headers.get("Allow", "")
        return answer
    return error_response(NotFound(f"there is no route {path}; /openapi.json lists them"))


# ---------------------------------------------------------------------------------- schema errors


def schema_error(error: ValidationError, body: object) -> InvalidRequest:
    """A 400 that names each wrong field, what was given and what is allowed."""
    found: dict[str, tuple[list[str], object]] = {}
    for detail in error.errors(include_url=False):
        path, given = dotted(detail, body)
        found.setdefault(path, ([], given))[0].append(_sentence(detail))
    # Where another form of a value got deeper before it failed, that is the error to tell.
    for path in list(found):
        if any(other.startswith(path + ".") for other in found):
            del found[path]
    lines = []
    for path, (sentences, given) in list(found.items())[:MAX_ERRORS]:
        line = f"{path}: {' or '.join(dict.fromkeys(sentences))}" if path else sentences[0]
        lines.append(line + ("" if given is _ABSENT else f" (given: {shown(given)})"))
    if len(found) > MAX_ERRORS:
        lines.append(f"and {len(found) - MAX_ERRORS} more")
    return InvalidRequest("; ".join(lines), param=next(iter(found)) or None)


_ABSENT = object()


def dotted(detail: ErrorDetails, body: object) -> tuple[str, object]:
    """The path of the field as the client knows it, and its value.

    pydantic's location also names members of unions; only parts that lead into the body count.
    """
    parts: list[str] = []
    here: Any = body
    for part in detail["loc"]:
        if _leads_into(here, part):
            here = here[part]
        elif detail["type"] == "missing" and part == detail["loc"][-1]:
            here = _ABSENT
        else:
            continue
        parts.append(str(part)[:64])
    return ".".join(parts), here


def _leads_into(value: object, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)


def _sentence(detail: ErrorDetails) -> str:
    """pydantic's words, without names of Python types."""
    if detail["type"] == "missing":
        return "is required"
    if detail["type"] == "extra_forbidden":
        return "is no field of this body"
    if detail["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return "must be an object"
    if detail["type"] == "list_type":
        return "must be a list"
    if (limit := _LENGTHS.get(detail["type"])) is not None:
        words, key, unit = limit
        count = detail["ctx"][key]
        return f"must have {words} {count} {unit}{'' if count == 1 else 's'}"
    return detail["msg"].replace("Input should be", "must be").replace("String should", "must")


# pydantic's name of an error → how it is told, and where the number is.
_LENGTHS = {
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
}


def shown(value: object) -> str:
    """A given value as JSON, cut."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "a value that is no JSON"
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "..."
