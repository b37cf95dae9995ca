"""The HTTP application of a text server: which path is answered by what."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.api.auth import RequireKey
from octavo.api.errors import on_http_error, on_request_error
from octavo.api.middleware import Door, Net, RequestIds
from octavo.api.openapi import Operation, openapi_route
from octavo.api.routes import admin, chat, completions, health, models, utility
from octavo.api.schemas import answers
from octavo.api.schemas.chat import ChatBody
from octavo.api.schemas.completions import CompletionBody
from octavo.api.schemas.utility import AbortBody, DetokenizeBody, TokenizeChat, TokenizeText
from octavo.config import Config
from octavo.errors import RequestError, Unavailable
from octavo.serving.context import Context

Handler = Callable[[Request], Awaitable[Response]]


class Path(NamedTuple):
    """One path of the application."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    operation: Operation


def operation(
    summary: str, bodies: tuple[type[BaseModel], ...] = (), answer: type | None = None
) -> Operation:
    """What /openapi.json says of a path."""
    return Operation(summary, bodies, answer)


def text_paths(config: Config) -> list[Path]:
    """The paths that these flags turn on."""
    server = config.server
    paths = [
        Path(
            "/v1/completions",
            ("POST",),
            completions.create_completion,
            operation("Complete prompts.", (CompletionBody,), answers.Completion),
        ),
        Path(
            "/v1/chat/completions",
            ("POST",),
            chat.create_chat_completion,
            operation("Answer a chat.", (ChatBody,), answers.ChatCompletion),
        ),
        Path(
            "/v1/models",
            ("GET",),
            models.list_models,
            operation("The served model.", answer=answers.ModelList),
        ),
        Path(
            "/v1/models/{model:path}",
            ("GET",),
            models.get_model,
            operation("A model by its name.", answer=answers.ModelCard),
        ),
        Path(
            "/tokenize",
            ("POST",),
            utility.tokenize,
            operation("Text or chat to ids.", (TokenizeText, TokenizeChat), answers.Tokenized),
        ),
        Path(
            "/detokenize",
            ("POST",),
            utility.detokenize,
            operation("Ids to text.", (DetokenizeBody,), answers.Detokenized),
        ),
        Path("/health", ("GET",), health.health, operation("Are requests taken?")),
        Path("/ping", ("GET", "POST"), health.health, operation("The same as /health.")),
        Path("/version", ("GET",), health.version, operation("The version.")),
        Path("/server_info", ("GET",), health.server_info, operation("Configuration, machine.")),
    ]
    if server.enable_metrics:
        paths.append(Path("/metrics", ("GET",), health.metrics, operation("Prometheus metrics.")))
    if server.enable_tokenizer_info_endpoint:
        paths.append(
            Path("/tokenizer_info", ("GET",), utility.tokenizer_info, operation("The tokenizer."))
        )
    if server.enable_server_dev_mode:
        paths += [
            Path(
                "/abort_requests",
                ("POST",),
                admin.abort_requests,
                operation("End requests.", (AbortBody,), answers.Aborted),
            ),
            Path(
                "/reset_prefix_cache",
                ("POST",),
                admin.reset_prefix_cache,
                operation("Empty the prefix cache.", answer=answers.CacheReset),
            ),
        ]
    return paths


def build_app(context: Context) -> Starlette:
    """The application around a context whose engine runs."""

    def why_closed() -> RequestError | None:
        return Unavailable("the server is shutting down") if context.draining else None

    paths = text_paths(context.config)
    routes = [Route(p.path, p.handler, methods=list(p.methods)) for p in paths]
    routes.append(openapi_route([(p.path, p.methods, p.operation) for p in paths]))
    middleware = [
        Middleware(RequestIds),
        Middleware(Net, why_closed=why_closed),
        Middleware(Door, why_closed=why_closed),
    ]
    if context.config.server.api_key:
        middleware.append(Middleware(RequireKey, keys=context.config.server.api_key))
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_error},
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app
