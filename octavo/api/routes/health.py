"""GET /health, GET and POST /ping, GET /version, GET /server_info, GET /metrics."""

import os
import platform
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.api.routes.replies import json_reply
from octavo.config import Config
from octavo.config.config import GROUPS
from octavo.config.fields import Flag, flags_of
from octavo.errors import InvalidRequest, NotFound
from octavo.serving.context import Context

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request) -> Response:
    """Empty 200 while requests are taken, else 503."""
    context: Context = request.app.state.context
    context.check_open()
    return Response()


async def version(_: Request) -> Response:
    """The version."""
    return json_reply({"version": __version__})


async def server_info(request: Request) -> Response:
    """Configuration and machine, without secrets and folders. `config_format`: text or json."""
    context: Context = request.app.state.context
    form = request.query_params.get("config_format", "text")
    if form not in ("text", "json"):
        raise InvalidRequest("config_format must be text or json", param="config_format")
    shown = public_config(context.config)
    return json_reply(
        {
            "vllm_config": shown if form == "json" else msgspec.json.encode(shown).decode(),
            "vllm_env": public_environment(os.environ),
            "system_env": {
                "octavo": __version__,
                "python": platform.python_version(),
                "machine": platform.machine(),
                "system": f"{platform.system()} {platform.release()}",
                "cpus": os.cpu_count(),
            },
        }
    )


def public_config(config: Config) -> dict[str, Any]:
    """The configuration by group. Of a path only the last part, of a secret only whether it is."""
    return {
        name: {
            member.name: _shown(getattr(getattr(config, name), member.name), flag)
            for member, flag in flags_of(group)
        }
        for name, group in GROUPS.items()
    }


def public_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The variables that options are read from, as far as they are set."""
    return {
        flag.env: _shown(environ[flag.env], flag)
        for group in GROUPS.values()
        for _, flag in flags_of(group)
        if flag.env in environ
    }


def _shown(value: Any, flag: Flag) -> Any:
    if flag.secret:
        return "set" if value else "unset"
    if isinstance(value, str) and os.sep in value:
        return os.path.basename(value.rstrip(os.sep))
    return value


async def metrics(request: Request) -> Response:
    """What the server counts, in Prometheus' text format."""
    context: Context = request.app.state.context
    if context.metrics is None:
        raise NotFound("/metrics is switched off on this server (--disable-metrics)")
    return Response(context.metrics.render(), headers={"Content-Type": METRICS_TYPE})
