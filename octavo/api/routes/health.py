"""GET /health, GET and POST /ping, GET /version, GET /server_info, GET /metrics."""

import os
import platform
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.api.routes.replies import json_reply
from octavo.config import Config
from octavo.errors import InvalidRequest, NotFound
from octavo.serving.context import Context

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ENVIRONMENT_PREFIXES = ("VT_", "VLLM_", "OCTAVO_")


async def health(request: Request) -> Response:
    """Empty 200 while requests are taken, else 503."""
    context: Context = request.app.state.context
    context.check_open()
    return Response()


async def version(_: Request) -> Response:
    """The version."""
    return json_reply({"version": __version__})


async def server_info(request: Request) -> Response:
    """Configuration and machine, without keys and folders. `config_format`: text or json."""
    context: Context = request.app.state.context
    form = request.query_params.get("config_format", "text")
    if form not in ("text", "json"):
        raise InvalidRequest("config_format must be text or json", param="config_format")
    shown = public_config(context.config)
    return json_reply(
        {
            "vllm_config": shown if form == "json" else msgspec.json.encode(shown).decode(),
            "vllm_env": {
                name: value
                for name, value in sorted(os.environ.items())
                if name.startswith(ENVIRONMENT_PREFIXES) and os.sep not in value
            },
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
    """The configuration without keys; of a path only its last part."""

    def shown(name: str, value: Any) -> Any:
        if name == "api_key":
            return f"{len(value)} keys"
        if isinstance(value, str) and os.sep in value:
            return os.path.basename(value.rstrip(os.sep))
        return value

    groups = asdict(config)
    return {
        group: {name: shown(name, value) for name, value in values.items()}
        for group, values in groups.items()
        if isinstance(values, dict)
    }


async def metrics(request: Request) -> Response:
    """What the server counts, in Prometheus' text format."""
    context: Context = request.app.state.context
    if context.metrics is None:
        raise NotFound("/metrics is switched off on this server (--disable-metrics)")
    return Response(context.metrics.render(), headers={"Content-Type": METRICS_TYPE})
