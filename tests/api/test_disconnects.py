"""A client that goes away ends its request, wherever that is; and other ends of streams."""

import asyncio
import threading

import pytest
from starlette.types import Message

from octavo.api.schemas.completions import CompletionBody
from octavo.api.sse import PING, EventStream
from octavo.errors import TooManyRequests, Unavailable
from octavo.serving.completions import plan_completion
from octavo.serving.generation import SLICE, Generation
from octavo.text import stop

SLOW = {"step_delay_ms": 5}


def replies():
    return [["tick "] * 3000]


@pytest.mark.parametrize("stream", [True, False])
def test_gone_while_it_runs(serve, stream):
    async def scenario(client):
        gone = asyncio.Event()
        asking = asyncio.create_task(client.chat("go", stream=stream, gone=gone))
        await client.until_running(1)
        gone.set()
        reply = await asyncio.wait_for(asking, 2)
        assert b"[DONE]" not in reply.body
        await client.until_idle()
        assert not client.context.active

    serve(replies(), scenario, **SLOW)


@pytest.mark.parametrize("stream", [True, False])
def test_gone_while_it_waits(serve, stream):
    async def scenario(client):
        gone, gone_too = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(client.chat("go", gone=gone))
        await client.until_running(1)
        second = asyncio.create_task(client.chat("go", stream=stream, gone=gone_too))
        async with asyncio.timeout(5):
            while client.context.engine.stats().waiting != 1:
                await asyncio.sleep(0.005)
        gone_too.set()
        await asyncio.wait_for(second, 2)
        async with asyncio.timeout(5):
            while client.context.engine.stats().waiting:
                await asyncio.sleep(0.005)
        assert client.context.engine.stats().running == 1, "the one that runs is left alone"
        gone.set()
        await asyncio.wait_for(first, 2)
        await client.until_idle()

    serve(replies(), scenario, "--max-num-seqs", "1", **SLOW)


@pytest.mark.parametrize("stream", [True, False])
def test_gone_before_the_answer_began(serve, stream):
    async def scenario(client):
        gone = asyncio.Event()
        gone.set()
        for _ in range(20):
            await asyncio.wait_for(client.chat("go", stream=stream, gone=gone), 2)
        await client.until_idle()
        assert not client.context.active

    serve(replies(), scenario, **SLOW)


def test_all_choices_end(serve):
    async def scenario(client):
        gone = asyncio.Event()
        asking = asyncio.create_task(client.chat("go", n=3, temperature=1, stream=True, gone=gone))
        await client.until_running(3)
        gone.set()
        await asyncio.wait_for(asking, 2)
        await client.until_idle()

    serve(replies(), scenario, **SLOW)


def test_a_stop_string_ends_it_in_the_engine(serve):
    async def scenario(client):
        choice = (await client.complete("go", max_tokens=-1, stop=["k tick t"])).json()["choices"][
            0
        ]
        assert (choice["text"], choice["stop_reason"]) == ("tic", "k tick t")
        await client.until_idle()
        text = client.context.metrics.render().decode()
        assert 'finished_reason="stop",model_name="scripted"} 1.0' in text

    serve(replies(), scenario, **SLOW)


@pytest.mark.parametrize("n", [1, 2])
def test_failed_step_in_a_stream(serve, n):
    async def scenario(client):
        fields = {"n": n, "temperature": 1, "stream": True}
        *frames, error = (await client.chat("go", **fields)).events()
        assert frames[-1]["choices"][0]["delta"].get("content") == "tick "
        assert error["error"]["type"] == "InternalServerError"
        assert error["error"]["code"] == 500
        await client.until_idle()
        assert (await client.chat("go", max_tokens=2)).status == 200

    serve(replies(), scenario, fail_at_step=4, step_delay_ms=5)


def test_failed_step_without_a_stream(serve):
    async def scenario(client):
        reply = await client.chat("go")
        assert reply.status == 500
        assert reply.error()["message"]

    serve(replies(), scenario, fail_at_step=4)


def test_dead_engine(serve):
    async def scenario(client):
        assert (await client.get("/health")).status == 200
        assert (await client.chat("go")).status in (500, 503)
        reply = await client.get("/health")
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 0
        assert (await client.chat("go")).status == 503

    serve(replies(), scenario, die_at_step=2)


def test_full_queue(serve):
    async def scenario(client):
        gone = asyncio.Event()
        asking = [asyncio.create_task(client.chat("go", gone=gone)) for _ in range(3)]
        async with asyncio.timeout(10):
            while client.context.engine.num_open != 3:
                await asyncio.sleep(0.005)
        reply = await client.chat("go", stream=True)
        assert reply.status == 429
        assert reply.error()["type"] == "RateLimitError"
        assert "retry-after" in reply.headers
        gone.set()
        await asyncio.gather(*asking)

    serve(replies(), scenario, "--max-num-seqs", "2", "--max-queue", "1", **SLOW)


def test_more_choices_than_ever_fit(serve):
    async def scenario(client):
        reply = await client.chat("go", n=4, temperature=1)
        assert (reply.status, reply.error()["param"]) == (400, "n"), "waiting would not help"
        assert client.context.engine.num_open == 0
        assert not client.context.active
        reply = await client.chat("go", n=3, temperature=1, max_tokens=2)
        assert reply.status == 200

    serve(replies(), scenario, "--max-num-seqs", "2", "--max-queue", "1", **SLOW)


def test_all_choices_or_none_are_admitted(serve):
    async def scenario(client):
        gone = asyncio.Event()
        asking = asyncio.create_task(client.chat("go", gone=gone))
        await client.until_running(1)
        reply = await client.chat("go", n=3, temperature=1)
        assert reply.status == 429
        assert client.context.engine.num_open == 1, "nothing was submitted"
        gone.set()
        await asking

    serve(replies(), scenario, "--max-num-seqs", "2", "--max-queue", "1", **SLOW)


def test_draining_refuses_what_is_new(serve):
    async def scenario(client):
        asking = asyncio.create_task(client.chat("go", max_tokens=20, stream=True))
        await client.until_running(1)
        client.context.draining = True
        for path, body in (("/v1/completions", {"prompt": "x"}), ("/tokenize", {"prompt": "x"})):
            reply = await client.post(path, body)
            assert (reply.status, reply.error()["code"]) == (503, 503)
            assert int(reply.headers["retry-after"]) >= 0
        assert (await client.get("/health")).status == 503
        assert (await client.get("/metrics")).status == 200
        events = (await asking).events()
        assert events[-1]["choices"][0]["finish_reason"] == "length"

    serve(replies(), scenario, **SLOW)


def test_many_choices_leave_others_their_turn(serve):
    async def scenario(client):
        engine, most, open_before = client.context.engine, 0, 0
        asking = asyncio.create_task(client.complete("go", n=500, temperature=1, max_tokens=1))
        async with asyncio.timeout(30):
            while not asking.done():
                await asyncio.sleep(0)
                most = max(most, engine.num_open - open_before)
                open_before = engine.num_open
        assert 0 < most <= SLICE
        assert len((await asking).json()["choices"]) == 500
        assert client.context.active.coming == 0

    serve(replies(), scenario)


async def partly_submitted(client):
    """Returns when some choices of a request are in the engine, but not all."""
    async with asyncio.timeout(10):
        while not client.context.active.coming or not client.context.engine.num_open:
            await asyncio.sleep(0)


def test_abort_while_choices_are_submitted(serve):
    async def scenario(client):
        asking = asyncio.create_task(client.complete("go", n=500, temperature=1, max_tokens=-1))
        await partly_submitted(client)
        assert client.context.abort() == 1
        choices = (await asking).json()["choices"]
        assert {choice["finish_reason"] for choice in choices} == {"abort"}
        await client.until_idle()

    serve(replies(), scenario, **SLOW)


def test_choices_on_their_way_take_room(serve):
    async def scenario(client):
        plan = plan_completion(client.context, CompletionBody(prompt="go"), "late")
        asking = asyncio.create_task(client.complete("go", n=200, temperature=1, max_tokens=1))
        await partly_submitted(client)
        with pytest.raises(TooManyRequests):
            await Generation.begin(client.context, plan)
        assert (await asking).status == 200

    serve(replies(), scenario, "--max-num-seqs", "100", "--max-queue", "100", **SLOW)


@pytest.mark.parametrize("how", ["failure", "cancelled"])
def test_nothing_is_left_of_choices_that_were_submitted(serve, monkeypatch, how):
    async def scenario(client):
        context, submit = client.context, client.context.engine.submit

        def failing(request_id, *args, **kw):
            if request_id.endswith("300"):
                raise Unavailable("no more")
            return submit(request_id, *args, **kw)

        if how == "failure":
            monkeypatch.setattr(context.engine, "submit", failing)
        asking = asyncio.create_task(client.complete("go", n=500, temperature=1, max_tokens=-1))
        await partly_submitted(client)
        if how == "cancelled":
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:
            assert (await asking).status == 503
        assert not context.engine.num_open
        assert not context.active
        assert context.active.coming == 0
        await client.until_idle()

    serve(replies(), scenario, **SLOW)


def test_choices_share_what_finds_stop_strings(serve, monkeypatch):
    made = []

    class Counted(stop.Automaton):
        def __init__(self, patterns):
            made.append(threading.current_thread() is threading.main_thread())
            super().__init__(patterns)

    async def scenario(client):
        monkeypatch.setattr(stop, "Automaton", Counted)
        reply = await client.complete(["go", "on"], n=3, temperature=1, stop=["k tick t"])
        assert {choice["text"] for choice in reply.json()["choices"]} == {"tic"}
        assert made == [False], "made once, and not on the event loop"

    serve(replies(), scenario)


# ------------------------------------------------------------------------------- streams alone


def run_stream(events, *, ping_s, disconnect_after_s=None):
    """The body bytes of an event stream, and how often its end was called."""
    sent: list[bytes] = []
    ends: list[int] = []

    async def receive() -> Message:
        await (asyncio.sleep(disconnect_after_s) if disconnect_after_s else asyncio.Event().wait())
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    stream = EventStream(events, ping_s=ping_s, on_end=lambda: ends.append(1))
    asyncio.run(asyncio.wait_for(stream({}, receive, send), 5))
    return sent[1:], len(ends)


async def slow_events(closed, pause_s=0.12):
    try:
        yield b"data: 1\n\n"
        await asyncio.sleep(pause_s)
        yield b"data: 2\n\n"
    finally:
        closed.append(1)


def test_comments_fill_silences():
    closed: list[int] = []
    sent, ends = run_stream(slow_events(closed), ping_s=0.02)
    assert sent[0] == b"data: 1\n\n"
    assert sent[1:3] == [PING, PING]
    assert sent[-2:] == [b"data: 2\n\n", b""]
    assert (len(closed), ends) == (1, 1)


def test_no_comments_when_switched_off():
    sent, _ = run_stream(slow_events([]), ping_s=0)
    assert sent == [b"data: 1\n\n", b"data: 2\n\n", b""]


def test_disconnect_closes_the_generator():
    closed: list[int] = []
    sent, ends = run_stream(slow_events(closed, pause_s=60), ping_s=0, disconnect_after_s=0.02)
    assert sent == [b"data: 1\n\n"]
    assert (len(closed), ends) == (1, 1)


def test_a_failing_stream_also_ends_its_watcher():
    watching: list[str] = []

    async def events():
        yield b"data: 1\n\n"
        raise RuntimeError("broken")

    async def receive() -> Message:
        watching.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            watching.append("ended")
        return {}

    async def send(_: Message) -> None:
        await asyncio.sleep(0)

    async def scenario():
        stream = EventStream(events(), ping_s=0, on_end=lambda: None)
        with pytest.raises(RuntimeError, match="broken"):
            await asyncio.wait_for(stream({}, receive, send), 5)
        await asyncio.sleep(0)  # a cancelled `receive` ends in the next turn
        assert watching == ["began", "ended"]

    asyncio.run(scenario())
