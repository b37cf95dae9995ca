"""What every use case of a text server works with, made once at start."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

from octavo.config import Config
from octavo.engine.client import AsyncEngine
from octavo.engine.settings import EngineSettings
from octavo.errors import Unavailable
from octavo.metrics import Metrics
from octavo.serving.active import ActiveRequests
from octavo.serving.loading import Served
from octavo.serving.params import SamplingRules
from octavo.serving.prompts import PromptReader
from octavo.types import ModelLimits

T = TypeVar("T")


@dataclass(slots=True)
class Context:
    """One served model, its engine, and the threads for slow work. Only `draining` changes.

    Used on the event loop's thread; worker threads read only what never changes.
    """

    config: Config
    served: Served
    engine: AsyncEngine
    workers: Executor
    rules: SamplingRules
    prompts: PromptReader
    metrics: Metrics | None = None
    active: ActiveRequests = field(default_factory=ActiveRequests)
    draining: bool = False

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Run slow, pure work on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, work, *args)

    def check_open(self) -> None:
        """Raise Unavailable while the server drains or when its engine is dead."""
        if self.draining:
            raise Unavailable("the server is shutting down; try another one, or again later")
        self.engine.check()

    def abort(self, client_ids: Sequence[str] | None = None) -> int:
        """End these requests (None: all) with finish reason `abort`; how many there were."""
        found = self.active.mark_aborted(client_ids)
        return sum(self.engine.abort(engine_ids) > 0 for engine_ids in found)


def make_context(
    config: Config, served: Served, settings: EngineSettings, workers: Executor
) -> Context:
    """Everything around an engine that is not started yet."""
    limits = ModelLimits(settings.max_model_len, served.vocab_size, config.server.max_logprobs)
    metrics = None
    if config.server.enable_metrics:
        cache_config = {
            "block_size": str(settings.block_size),
            "num_gpu_blocks": str(settings.num_blocks),
            "enable_prefix_caching": str(settings.prefix_caching),
            "cache_dtype": config.cache.kv_cache_dtype,
        }
        metrics = Metrics(served.name, settings.max_model_len, cache_config)
    return Context(
        config=config,
        served=served,
        engine=AsyncEngine(served.backend, settings, metrics),
        workers=workers,
        rules=SamplingRules(
            limits,
            served.eos_token_ids,
            served.defaults,
            config.server.max_new_tokens,
            priorities=config.scheduler.policy == "priority",
        ),
        prompts=PromptReader(
            served.tokenizer,
            limits,
            config.server.max_prompt_chars,
            config.server.max_completion_prompts,
        ),
        metrics=metrics,
    )
