"""Drives an engine core step by step, without threads; after each step the books must agree."""

from collections.abc import Sequence
from typing import Any

from octavo.backends.base import Backend
from octavo.engine.core import EngineCore
from octavo.engine.request import Request
from octavo.engine.sampling import SamplingParams
from octavo.engine.settings import EngineSettings
from octavo.engine.stream import TokenDelta
from octavo.errors import RequestError
from octavo.testing.slots import HashBackend

SMALL: dict[str, Any] = {
    "max_model_len": 64,
    "block_size": 4,
    "num_blocks": 64,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
}


class EngineDriver:
    """An engine core and the answers that its requests have got so far.

    backend None: a `HashBackend`. sizes: of `EngineSettings`, on top of SMALL.
    """

    def __init__(self, backend: Backend | None = None, **sizes: Any) -> None:
        self.core = EngineCore(
            backend or HashBackend(vocab_size=97), EngineSettings(**(SMALL | sizes))
        )
        self.core.allocate_cache()
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, TokenDelta] = {}
        self.errors: dict[str, RequestError] = {}

    def submit(
        self,
        name: str,
        prompt: Sequence[int],
        seed: int = 0,
        cache_salt: str | None = None,
        **params: Any,
    ) -> Request:
        """Queue a request; greedy and of 8 tokens unless told otherwise."""
        sampling = SamplingParams(**({"max_tokens": 8, "temperature": 0.0} | params))
        request = Request(name, list(prompt), sampling, seed, cache_salt=cache_salt)
        self.core.add(request)
        self.requests[name] = request
        self.answers[name] = TokenDelta()
        return request

    def step(self) -> None:
        """One step. CacheCorrupt: the books of the cache disagree."""
        self.core.step()
        self._collect()
        self.core.kv.check()

    def abort(self, name: str) -> None:
        """End a request now."""
        self.core.abort([self.requests[name]], "abort")
        self._collect()
        self.core.kv.check()

    def run(self, most_steps: int = 2000) -> None:
        """Step until every request has ended."""
        for _ in range(most_steps):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError(f"requests still run after {most_steps} steps")

    def _collect(self) -> None:
        for request, news in self.core.take_events():
            name = request.request_id
            if isinstance(news, RequestError):
                self.errors[name] = news
            else:
                self.answers[name].merge(news)
