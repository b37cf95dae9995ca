"""What the engine tells a request's consumer, and the async iterator that carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.errors import RequestError
from octavo.types import FinishReason, PositionLogprobs


@dataclass(slots=True)
class TokenDelta:
    """New tokens of one request since the last delta.

    The token that ended the request (EOS, stop id) is in `token_ids`. `logprobs`, when asked for,
    has an entry for each of them; `prompt_logprobs` comes once, with the first delta.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None

    def merge(self, later: TokenDelta) -> None:
        """Append a later delta: a slow consumer gets fewer, larger ones."""
        self.token_ids += later.token_ids
        if later.logprobs is not None:
            self.logprobs = (self.logprobs or []) + later.logprobs
        if later.prompt_logprobs is not None:
            self.prompt_logprobs = later.prompt_logprobs
        self.cached_tokens = later.cached_tokens
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason


class RequestStream:
    """Async iterator of one request's deltas; lives on the event loop's thread.

    Ends after the delta with a finish reason, or raises what ended the request.
    """

    def __init__(self, request_id: str, on_close: Callable[[FinishReason], None]) -> None:
        self.request_id = request_id
        self._on_close = on_close
        self._pending: TokenDelta | None = None
        self._error: RequestError | None = None
        self._ready = asyncio.Event()
        self._ended = False  # nothing more will be delivered
        self._closed = False  # the consumer wants nothing more

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> TokenDelta:
        if self._closed:
            raise StopAsyncIteration
        await self._ready.wait()
        if self._pending is not None:
            delta, self._pending = self._pending, None
            if not self._ended:
                self._ready.clear()
            return delta
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopAsyncIteration

    def close(self, reason: FinishReason = "abort") -> None:
        """Want no more: the engine ends the request, if it runs, for this reason. Idempotent."""
        if not self._closed:
            self._closed = True
            self._ready.set()
            if not self._ended:
                self._ended = True
                self._on_close(reason)

    # ------------------------------------------------ called by the engine, on the event loop

    def deliver(self, delta: TokenDelta) -> None:
        """Hand over new tokens."""
        if self._ended:
            return
        if self._pending is None:
            self._pending = delta
        else:
            self._pending.merge(delta)
        self._ended = delta.finish_reason is not None
        self._ready.set()

    def fail(self, error: RequestError) -> None:
        """End with an error, after what was delivered before."""
        if not self._ended:
            self._error = error
            self._ended = True
            self._ready.set()
