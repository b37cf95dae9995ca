"""A failed step ends its own requests, a closed stream frees its blocks, a dead engine says so."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from octavo.backends.base import Batch
from octavo.engine.client import AsyncEngine
from octavo.engine.sampling import SamplingParams
from octavo.engine.settings import EngineSettings
from octavo.errors import EngineFailure, InvalidRequest, TooManyRequests, Unavailable
from octavo.metrics import Metrics
from octavo.testing.scripted.backend import EngineDeath
from octavo.testing.slots import HashBackend, SlotStep

SETTINGS = EngineSettings(
    max_model_len=256, block_size=4, num_blocks=128, max_num_seqs=2, max_num_batched_tokens=16
)
LONG = SamplingParams(max_tokens=200, temperature=0.0)


class Gate(HashBackend):
    """Runs one step for each permission, so that a test decides what happens between steps."""

    def __init__(self) -> None:
        super().__init__(vocab_size=31)
        self.steps = 0
        self.error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._permits = asyncio.Semaphore(0)

    def allow(self, steps: int = 1) -> None:
        for _ in range(steps):
            self._permits.release()

    def start(self, batch: Batch) -> SlotStep:
        asyncio.run_coroutine_threadsafe(self._permits.acquire(), self._loop).result()
        self.steps += 1
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return super().start(batch)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def run(test: Callable[[AsyncEngine, Gate], Any], **changes: Any) -> None:
    """Run a test with an engine whose steps it permits one by one."""

    async def body() -> None:
        gate = Gate()
        settings = EngineSettings(**(_fields(SETTINGS) | changes))
        engine = AsyncEngine(gate, settings, Metrics("m", 256, {}))
        engine.start()
        try:
            await test(engine, gate)
        finally:
            gate.allow(10_000)
            assert await engine.stop()

    asyncio.run(body())


def _fields(settings: EngineSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in EngineSettings.__dataclass_fields__}


@pytest.mark.parametrize("state", ["queued", "prefill", "decoding"])
def test_a_closed_stream_frees_its_blocks_within_one_step(state: str) -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        others = []
        if state == "queued":
            others = [engine.submit(f"other {i}", [1, 2], LONG) for i in range(2)]
            gate.allow(2)
            await until(lambda: engine.stats().running == 2 and gate.steps == 2)
        prompt = [3] * (100 if state == "prefill" else 10)
        stream = engine.submit("x", prompt, LONG)
        if state != "queued":
            gate.allow(3)
            await until(lambda: gate.steps == 3)
            assert engine.stats().kv_cache_usage > 0
        held = engine._loop._core.kv.usage
        stream.close()
        gate.allow(1)  # at most the step that is under way or the next one
        if state == "queued":
            await until(lambda: engine.stats().waiting == 0)
            assert engine.stats().running == 2, "those that run are left alone"
        else:
            await until(lambda: engine.stats().kv_cache_usage == 0)
            assert held > 0
        assert gate.steps <= 4
        for other in others:
            other.close()

    run(test)


def test_a_failed_step_ends_its_batch_and_the_engine_goes_on() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        streams = [engine.submit(f"s{i}", [i + 1], LONG) for i in range(3)]  # the third waits
        gate.allow(1)
        await until(lambda: gate.steps == 1)
        gate.error = ValueError("a bad step")
        gate.allow(1)
        for stream in streams[:2]:
            with pytest.raises(EngineFailure):
                async for _ in stream:
                    pass
        gate.allow(500)
        tokens = [t async for delta in streams[2] for t in delta.token_ids]
        assert len(tokens) == 200
        assert engine.alive
        await until(lambda: engine.stats().kv_cache_usage == 0)

    run(test)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_engine_fails_everyone_and_refuses() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        stream = engine.submit("x", [1], LONG)
        gate.error = EngineDeath("now")
        gate.allow(1)
        with pytest.raises(EngineFailure):
            async for _ in stream:
                pass
        assert not engine.alive
        with pytest.raises(Unavailable):
            engine.submit("y", [1], LONG)
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.kv_cache_usage) == (0, 0, 0)
        assert engine.metrics is not None
        assert b'finished_reason="error",model_name="m"} 1.0' in engine.metrics.render()

    run(test)


def test_an_aborted_request_says_so_and_the_queue_has_a_limit() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        streams = [engine.submit(f"s{i}", [1], LONG) for i in range(3)]
        with pytest.raises(TooManyRequests):
            engine.check_room(1)
        with pytest.raises(InvalidRequest, match="4 sequences; allowed: 3"):
            engine.check_room(4)
        gate.allow(1)
        assert engine.abort(["s0", "unknown"]) == 1
        gate.allow(2)
        reasons = [delta.finish_reason async for delta in streams[0]]
        assert reasons[-1] == "abort"
        assert engine.abort(["s0"]) == 0
        for stream in streams:
            stream.close()
        await until(lambda: engine.num_open == 0)

    run(test, max_queue=1)


def test_an_id_that_is_used_again_gets_no_news_of_the_old_request() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        old = engine.submit("x", [1], LONG)
        gate.allow(2)
        await until(lambda: gate.steps == 2)
        old.close()
        new = engine.submit("x", [1], SamplingParams(max_tokens=5, temperature=0.0))
        gate.allow(50)
        deltas = [delta async for delta in new]
        assert sum(len(delta.token_ids) for delta in deltas) == 5
        assert deltas[-1].finish_reason == "length"

    run(test)


def test_a_backend_that_answers_nonsense_fails_the_step_only() -> None:
    class Short(Gate):
        def start(self, batch: Batch) -> SlotStep:
            step = super().start(batch)
            return SlotStep(step._logits[:0], ()) if self.steps == 2 else step

    async def body() -> None:
        gate = Short()
        engine = AsyncEngine(gate, SETTINGS)
        engine.start()
        gate.allow(500)
        with pytest.raises(EngineFailure):
            async for _ in engine.submit("x", [1], LONG):
                pass
        assert [d.finish_reason async for d in engine.submit("y", [1], LONG)][-1] == "length"
        assert engine.alive
        assert await engine.stop()

    asyncio.run(body())


def test_a_reset_does_not_wait_for_a_dead_engine() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        stream = engine.submit("x", [1], LONG)
        await until(lambda: engine.stats().running == 1)  # its step waits for the permission
        reset = asyncio.ensure_future(engine.reset_prefix_cache())
        await asyncio.sleep(0)
        gate.error = EngineDeath("now")
        gate.allow(1)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(reset, 10)
        stream.close()

    run(test)


def test_a_slow_consumer_gets_merged_deltas() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        stream = engine.submit("x", [1], LONG)
        gate.allow(300)
        await until(lambda: engine.num_open == 0)
        deltas = [delta async for delta in stream]
        assert len(deltas) == 1
        assert len(deltas[0].token_ids) == 200

    run(test)


def test_reset_of_the_prefix_cache() -> None:
    async def test(engine: AsyncEngine, gate: Gate) -> None:
        stream = engine.submit("x", [1] * 12, LONG)
        gate.allow(2)
        await until(lambda: gate.steps == 2)
        refused = asyncio.ensure_future(engine.reset_prefix_cache())
        gate.allow(1)
        assert not await refused
        preempting = asyncio.ensure_future(engine.reset_prefix_cache(True))
        gate.allow(1)
        assert await preempting
        gate.allow(500)
        assert sum([len(delta.token_ids) async for delta in stream]) == 200
        assert engine.metrics is not None
        assert b"vllm:generation_tokens_total" in engine.metrics.render()

    run(test)
