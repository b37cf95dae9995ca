"""Drives an engine core step by step, without threads."""

from collections.abc import Callable, Sequence

import pytest

from octavo.backends.base import Backend
from octavo.engine.core import EngineCore
from octavo.engine.request import Request
from octavo.engine.sampling import SamplingParams
from octavo.engine.settings import EngineSettings
from octavo.engine.stream import TokenDelta
from octavo.errors import RequestError
from octavo.testing.slots import HashBackend


class Driver:
    """An engine core and the answers that its requests have got so far."""

    def __init__(self, backend: Backend | None = None, **sizes: int | bool) -> None:
        defaults: dict[str, int | bool] = {
            "max_model_len": 64,
            "block_size": 4,
            "num_blocks": 64,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
        }
        settings = EngineSettings(**(defaults | sizes))  # type: ignore[arg-type]
        self.core = EngineCore(backend or HashBackend(vocab_size=97), settings)
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
        **params: object,
    ) -> Request:
        """Queue a request; greedy unless told otherwise."""
        sampling = SamplingParams(**({"max_tokens": 8, "temperature": 0.0} | params))  # type: ignore[arg-type]
        request = Request(name, list(prompt), sampling, seed, cache_salt=cache_salt)
        self.core.add(request)
        self.requests[name] = request
        self.answers[name] = TokenDelta()
        return request

    def step(self) -> None:
        """One step, then the books must agree."""
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


@pytest.fixture
def drive() -> Callable[..., Driver]:
    """Makes drivers: drive(backend, **sizes)."""
    return Driver
