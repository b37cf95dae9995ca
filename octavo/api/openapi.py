"""/openapi.json, made from the schemas that requests are checked with and answers encoded from."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo import __version__
from octavo.api.errors import ErrorBody
from octavo.serving.params import BOUNDS

REFERENCE = "#/components/schemas/{}"


class Operation(NamedTuple):
    """What is said of a path. bodies: the schemas it takes; answer: a msgspec struct."""

    summary: str
    bodies: tuple[type[BaseModel], ...] = ()
    answer: type | None = None


Described = tuple[str, Sequence[str], Operation]  # path, methods, what it does


def openapi_document(paths: Sequence[Described]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    operations = [operation for _, _, operation in paths]
    bodies = list(dict.fromkeys(body for op in operations for body in op.bodies))
    answers = [op.answer for op in operations if op.answer is not None]
    _, body_schemas = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REFERENCE.replace("{}", "{model}")
    )
    _, answer_schemas = msgspec.json.schema_components(
        [*answers, ErrorBody], ref_template=REFERENCE.replace("{}", "{name}")
    )
    schemas = body_schemas.get("$defs", {}) | answer_schemas
    for schema in schemas.values():
        _add_bounds(schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": __version__},
        "paths": {
            path.replace(":path", ""): {method.lower(): _describe(op) for method in methods}
            for path, methods, op in paths
        },
        "components": {"schemas": schemas},
    }


def _describe(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary}
    if operation.bodies:
        forms = [{"$ref": REFERENCE.format(body.__name__)} for body in operation.bodies]
        schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
        described["requestBody"] = {"required": True, "content": _json(schema)}
    good: dict[str, Any] = {"description": "Success"}
    if operation.answer is not None:
        good["content"] = _json({"$ref": REFERENCE.format(operation.answer.__name__)})
    bad = _json({"$ref": REFERENCE.format(ErrorBody.__name__)})
    described["responses"] = {
        "200": good,
        "default": {"description": "An error", "content": bad},
    }
    return described


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _add_bounds(schema: dict[str, Any]) -> None:
    """The ranges that serving/params.py checks."""
    for name, field in schema.get("properties", {}).items():
        forms = field.get("anyOf", [])
        if name not in BOUNDS or not any(f.get("type") in ("integer", "number") for f in forms):
            continue
        bound = BOUNDS[name]
        field["exclusiveMinimum" if bound.open_low else "minimum"] = bound.low
        if bound.high != float("inf"):
            field["maximum"] = bound.high


def openapi_route(paths: Sequence[Described]) -> Route:
    """GET /openapi.json; the document is made on the first request."""

    @cache
    def document() -> bytes:
        return msgspec.json.encode(openapi_document(paths))

    async def handler(_: Request) -> Response:
        return Response(document(), media_type="application/json")

    return Route("/openapi.json", handler)
