"""Routes for developers: POST /abort_requests, POST /reset_prefix_cache."""

import logging

from starlette.requests import Request
from starlette.responses import Response

from octavo.api.limits import parse_json, read_body, validate
from octavo.api.routes.replies import json_reply
from octavo.api.schemas.answers import Aborted, CacheReset
from octavo.api.schemas.utility import AbortBody
from octavo.errors import InvalidRequest, RequestError
from octavo.serving.context import Context

logger = logging.getLogger(__name__)
WORDS = {"true": True, "1": True, "false": False, "0": False}


async def abort_requests(request: Request) -> Response:
    """End requests by their ids, all without ids. Its error bodies have a form of their own."""
    context: Context = request.app.state.context
    try:
        data = await read_body(request, context.config.server.max_body_bytes)
        body = validate(AbortBody, parse_json(data or b"{}"))
    except RequestError as error:
        return json_reply({"detail": str(error)}, error.status)
    try:
        return json_reply(Aborted(context.abort(body.request_ids or None)))
    except Exception:
        logger.exception("abort failed")
        return json_reply({"error": "the requests could not be aborted; the log says why"}, 500)


async def reset_prefix_cache(request: Request) -> Response:
    """Empty the prefix cache, if no block is in use or `reset_running_requests` says so."""
    context: Context = request.app.state.context
    running = _flag(request, "reset_running_requests")
    if _flag(request, "reset_external"):
        raise InvalidRequest(
            "reset_external: this server has no external cache; leave it out",
            param="reset_external",
        )
    return json_reply(CacheReset(await context.engine.reset_prefix_cache(running)))


def _flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false").lower()
    if given not in WORDS:
        raise InvalidRequest(f"{name} must be true or false (given: {given[:40]!r})", param=name)
    return WORDS[given]
