"""A text server in this process: the real application and engine around the scripted double."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from octavo.api.app import build_app
from octavo.config import Config, parse_args
from octavo.engine.settings import EngineSettings
from octavo.serving.context import Context, make_context
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script

LONG = ["tick "] * 3000


@dataclass
class Reply:
    """An answer as it came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> Any:
        return self.json()["error"]

    def events(self) -> list[Any]:
        """The data of a stream's events; [DONE] must be the last."""
        lines = [e for e in self.body.decode().split("\n\n") if e and not e.startswith(":")]
        assert all(line.startswith("data: ") and "\n" not in line for line in lines)
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line[6:]) for line in lines]


class Client:
    """Speaks ASGI to the application, nothing between."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.app = build_app(context)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        gone: asyncio.Event | None = None,
        on_body: Callable[[bytes], None] | None = None,
        whole: bool = True,
    ) -> Reply:
        """One request. `gone`: when set, the client has closed the connection.

        whole: False: more of the body is announced, and never comes.
        """
        reply = Reply()
        path, _, query = path.partition("?")
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await (gone or asyncio.Event()).wait()
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": not whole}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                reply.body += message.get("body", b"")
                if on_body is not None:
                    on_body(message.get("body", b""))

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                (k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()
            ],
        }
        await self.app(scope, receive, send)
        return reply

    async def get(self, path: str, **kw: Any) -> Reply:
        return await self.send("GET", path, **kw)

    async def post(self, path: str, body: Any, **kw: Any) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, **kw)

    async def chat(self, text: str, **fields: Any) -> Reply:
        kw = {name: fields.pop(name) for name in ("gone", "on_body") if name in fields}
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "temperature": 0} | fields
        return await self.post("/v1/chat/completions", body, **kw)

    async def complete(self, prompt: Any, **fields: Any) -> Reply:
        kw = {name: fields.pop(name) for name in ("gone", "on_body") if name in fields}
        body = {"prompt": prompt, "temperature": 0} | fields
        return await self.post("/v1/completions", body, **kw)

    async def until_idle(self) -> None:
        """Wait until the engine holds nothing."""
        async with asyncio.timeout(10):
            while (stats := self.context.engine.stats()).running or stats.waiting:
                await asyncio.sleep(0.005)

    async def until_running(self, count: int) -> None:
        """Wait until so many sequences run."""
        async with asyncio.timeout(10):
            while self.context.engine.stats().running != count:
                await asyncio.sleep(0.005)


Scenario = Callable[[Client], Awaitable[None]]
Serve = Callable[..., None]


@pytest.fixture
def serve() -> Serve:
    """serve(replies, scenario, *flags, **script): run the scenario against a server."""

    def run(
        replies: list[Any],
        scenario: Scenario,
        *flags: str,
        environ: Mapping[str, str] | None = None,
        **script: Any,
    ) -> None:
        config = parse_args(["scripted", *flags], environ=environ or {})
        asyncio.run(_run(replies, scenario, config, script))

    return run


async def _run(
    replies: list[Any], scenario: Scenario, config: Config, script: dict[str, Any]
) -> None:
    replies = [reply if isinstance(reply, dict) else {"pieces": reply} for reply in replies]
    read = msgspec.convert({"replies": replies} | script, Script)
    served = load_scripted(config, read)
    settings = EngineSettings.derive(config, served.backend.cache_groups, served.model_len)
    with ThreadPoolExecutor(2) as workers:
        context = make_context(config, served, settings, workers)
        context.engine.start()
        try:
            await scenario(Client(context))
        finally:
            assert await context.engine.stop()
