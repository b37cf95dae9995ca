"""One client request in the engine: its prompts times `n` choices, merged into one stream."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple

from octavo.engine.request import child_id
from octavo.engine.sampling import SamplingParams
from octavo.engine.stream import RequestStream
from octavo.log import clip
from octavo.serving.choice import Choice, ChoiceDelta
from octavo.serving.context import Context
from octavo.serving.logprobs import TokenNames
from octavo.serving.usage import Usage
from octavo.text.automaton import Automaton

SLICE = 64  # choices that are submitted before others have their turn on the event loop

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt, ready for the engine. `params` fit it; `prefix` is what its answers begin with.

    stops: finds `params.stop`. echo: log-probability entries begin with the prompt's, if those are
    computed.
    """

    token_ids: list[int]
    params: SamplingParams
    stops: Automaton
    text: str | None = None
    prefix: str = ""
    echo: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked client request. Choice `k` of prompt `p` has the index `p * n + k`.

    prompt_logprobs: alternatives to tell for each prompt token; the engine may compute more of
    them for an echo.
    """

    request_id: str
    jobs: Sequence[Job]
    n: int = 1
    priority: int = 0
    cache_salt: str | None = None
    tokens_as_ids: bool = False
    prompt_logprobs: int | None = None


class IndexedDelta(NamedTuple):
    """A piece of one choice."""

    choice_index: int
    delta: ChoiceDelta


class Generation:
    """Runs a plan. `close` whenever the client wants no more; also after the end."""

    def __init__(self, context: Context, plan: Plan) -> None:
        """Nothing is submitted yet; call `begin` instead."""
        self.plan = plan
        self.choices: list[Choice] = []
        self._context = context
        self._streams: list[RequestStream] = []
        self._began_s = time.monotonic()
        self._closed = False
        self._texts = [""] * (len(plan.jobs) * plan.n)  # kept for the log only

    @classmethod
    async def begin(cls, context: Context, plan: Plan) -> "Generation":
        """Submit everything, or raise with nothing left behind.

        Raises Unavailable, TooManyRequests, and InvalidRequest for more choices than ever fit.
        """
        ids = [child_id(plan.request_id, index) for index in range(len(plan.jobs) * plan.n)]
        context.engine.check_room(len(ids), context.active.coming)
        context.active.add(plan.request_id, ids)
        generation = cls(context, plan)
        try:
            await generation._submit_all(ids)
        except BaseException:
            generation.close()
            raise
        if context.metrics is not None:
            context.metrics.observe_params(plan.n, plan.jobs[0].params.max_tokens)
        return generation

    async def _submit_all(self, ids: list[str]) -> None:
        context, n = self._context, self.plan.n
        names = TokenNames(context.served.tokenizer, self.plan.tokens_as_ids)
        left = len(ids)
        context.active.coming += left
        try:
            for index, engine_id in enumerate(ids):
                if index and index % SLICE == 0:
                    await asyncio.sleep(0)
                context.active.coming -= 1
                left -= 1
                self._submit(engine_id, self.plan.jobs[index // n], index % n, names)
        finally:
            context.active.coming -= left
        if context.active.is_aborted(self.plan.request_id):
            context.engine.abort(ids)  # those that were not submitted yet when it was asked for

    def _submit(self, engine_id: str, job: Job, k: int, names: TokenNames) -> None:
        choice = Choice(
            self._context.served.tokenizer,
            job.params,
            names,
            prefix=job.prefix,
            prompt_ids=job.token_ids if job.echo else (),
            stops=job.stops,
        )
        self.choices.append(choice)
        params = job.params
        if k and params.seed is not None:
            params = replace(params, seed=params.seed + k)
        stream = self._context.engine.submit(
            engine_id,
            job.token_ids,
            params,
            priority=self.plan.priority,
            cache_salt=self.plan.cache_salt,
        )
        self._streams.append(stream)

    @property
    def usage(self) -> Usage:
        """The counts so far."""
        firsts = self.choices[:: self.plan.n]
        return Usage(
            prompt_tokens=sum(len(job.token_ids) for job in self.plan.jobs),
            completion_tokens=sum(choice.num_tokens for choice in self.choices),
            cached_tokens=sum(choice.cached_tokens for choice in firsts),
        )

    async def deltas(self) -> AsyncGenerator[list[IndexedDelta]]:
        """The choices' pieces as they come, those of one moment together. Closes at its end.

        Raises what ended a choice in the engine (EngineFailure).
        """
        try:
            pieces = self._one(0) if len(self._streams) == 1 else self._merged()
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        finally:
            self.close()

    async def whole(self) -> list[ChoiceDelta]:
        """All pieces of each choice, put together."""
        answers = [ChoiceDelta() for _ in self.choices]
        async with aclosing(self.deltas()) as pieces:
            async for piece in pieces:
                for index, delta in piece:
                    answers[index].add(delta)
        return answers

    def close(self) -> None:
        """End what still runs, at once. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for stream in self._streams:
            stream.close("abort")
        self._context.active.remove(self.plan.request_id)
        if self._context.metrics is not None and self._streams:
            longest = max(choice.num_tokens for choice in self.choices)
            self._context.metrics.observe_longest(longest)
        if self._context.config.logs.enable_log_requests:
            self._log()

    # ------------------------------------------------------------------ inside

    def _log(self) -> None:
        usage, logs = self.usage, self._context.config.logs
        reasons = dict.fromkeys(choice.finish_reason or "unfinished" for choice in self.choices)
        logger.info(
            "%s: %s, %d prompt tokens (%d cached), %d tokens in %d choices, %.2f s",
            self.plan.request_id,
            " ".join(reasons),
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            len(self.choices),
            time.monotonic() - self._began_s,
        )
        if logs.enable_log_outputs:
            for index, text in enumerate(self._texts):
                name = child_id(self.plan.request_id, index)
                logger.info("%s: %s", name, clip(text, logs.max_log_len))

    async def _one(self, index: int) -> AsyncGenerator[list[IndexedDelta]]:
        stream, choice = self._streams[index], self.choices[index]
        async for tokens in stream:
            pieces = [IndexedDelta(index, delta) for delta in choice.feed(tokens)]
            if self._context.config.logs.enable_log_outputs:
                self._texts[index] += "".join(delta.text for _, delta in pieces)
            if choice.finished:
                stream.close("stop")  # at a stop string; else the engine has ended it already
            if pieces:
                yield pieces

    async def _merged(self) -> AsyncGenerator[list[IndexedDelta]]:
        # Bounded, so that a slow client is felt by the engine's streams, which merge their deltas.
        queue: asyncio.Queue[list[IndexedDelta] | Exception | None] = asyncio.Queue(
            len(self._streams)
        )
        tasks = [asyncio.create_task(self._pump(i, queue)) for i in range(len(self._streams))]
        running = len(tasks)
        try:
            while running:
                pieces: list[IndexedDelta] = []
                news = await queue.get()
                while True:
                    if isinstance(news, Exception):
                        raise news
                    if news is None:
                        running -= 1
                    else:
                        pieces += news
                    if queue.empty():
                        break
                    news = queue.get_nowait()
                if pieces:
                    yield pieces
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(
        self, index: int, queue: asyncio.Queue[list[IndexedDelta] | Exception | None]
    ) -> None:
        try:
            async for pieces in self._one(index):
                await queue.put(pieces)
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)
