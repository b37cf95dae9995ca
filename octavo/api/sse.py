"""Server-sent events: one `data:` line a frame, comments in long silences, abort on disconnect."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


def frame(value: Any) -> bytes:
    """One event. JSON escapes newlines, so that an event is always one line."""
    return b"data: " + _encode(value) + b"\n\n"


class EventStream(Response):
    """Sends the events of an async generator; each item is one or more whole events.

    When the client goes away the generator is closed at once, wherever it waits. After `ping_s`
    seconds of silence (0: never) a comment keeps proxies from closing the connection.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        *,
        ping_s: float,
        on_end: Callable[[], None],
    ) -> None:
        """on_end is called however it ends, even where the generator was never begun."""
        super().__init__(b"", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._ping_s = ping_s
        self._on_end = on_end
        self._last_sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; returns quietly when the client has gone."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        tasks: list[asyncio.Task[None]] = []
        try:
            await send({"type": "http.response.start"} | start)
            tasks.append(asyncio.create_task(self._send_events(send)))
            tasks.append(asyncio.create_task(self._watch(receive, send)))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._on_end()
            await end_tasks(tasks)

    async def _send_events(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                self._last_sent_s = asyncio.get_running_loop().time()
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Return when the client has gone; comment in silences until then."""
        now = asyncio.get_running_loop().time
        self._last_sent_s = now()
        receiving = asyncio.ensure_future(receive())
        try:
            while True:
                wait_s = self._last_sent_s + self._ping_s - now() if self._ping_s else None
                done, _ = await asyncio.wait({receiving}, timeout=wait_s)
                if done:
                    if receiving.result()["type"] == "http.disconnect":
                        return
                    receiving = asyncio.ensure_future(receive())
                elif now() - self._last_sent_s >= self._ping_s:
                    self._last_sent_s = now()
                    await send({"type": "http.response.body", "body": PING, "more_body": True})
        finally:
            receiving.cancel()


async def end_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them all, wait for them all, then raise the first error that one ended with."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):  # a cancelled one ended as it should
            raise result


class ClientGone(Exception):
    """The client closed the connection before its answer was ready."""


async def unless_gone(receive: Receive, work: Any) -> Any:
    """Await `work`, but cancel it and raise ClientGone as soon as the client has gone."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        watching.result()  # raises, if the watching itself failed
        raise ClientGone
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(receive: Receive) -> Message:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return message
