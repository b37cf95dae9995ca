"""/v1/completions and /v1/chat/completions: shapes, streams that equal wholes, echo, usage."""

from typing import Any

import pytest

SPLIT = ["ok ", {"hex": "f09f"}, {"hex": "988a"}, " bye"]
PLAIN = ["one ", "two ", "three"]


def text_of(events: list[Any], index: int = 0) -> str:
    choices = [c for e in events for c in e["choices"] if c["index"] == index]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)


def test_chat_shape(serve):
    async def scenario(client):
        reply = await client.chat("hi")
        body = reply.json()
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert body["id"].startswith("chatcmpl-")
        assert body["object"] == "chat.completion"
        assert body["model"] == "scripted"
        choice = body["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": "one two three"}
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
        assert choice["logprobs"] is None
        usage = body["usage"]
        assert usage["completion_tokens"] == 4, "the end token counts"
        assert usage["total_tokens"] == usage["prompt_tokens"] + 4
        assert usage["prompt_tokens_details"] == {"cached_tokens": 0}

    serve([PLAIN], scenario)


def test_chat_frames(serve):
    async def scenario(client):
        reply = await client.chat("hi", stream=True, stream_options={"include_usage": True})
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        *frames, last = reply.events()
        assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert [f["choices"][0]["delta"].get("content") for f in frames[1:]] == [*PLAIN, None]
        assert frames[-1]["choices"][0]["finish_reason"] == "stop"
        assert all(f["usage"] is None for f in frames)
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 4

    serve([PLAIN], scenario)


def test_no_usage_unless_asked_or_forced(serve):
    async def unasked(client):
        assert all("usage" not in e for e in (await client.chat("hi", stream=True)).events())

    async def forced(client):
        assert (await client.chat("hi", stream=True)).events()[-1]["usage"]["total_tokens"]

    serve([PLAIN], unasked)
    serve([PLAIN], forced, "--enable-force-include-usage")


def test_continuous_usage(serve):
    async def scenario(client):
        options = {"continuous_usage_stats": True}
        events = (await client.complete("hi", stream=True, stream_options=options)).events()
        assert [e["usage"]["completion_tokens"] for e in events] == [1, 2, 3, 4]

    serve([PLAIN], scenario)


@pytest.mark.parametrize("fields", [{}, {"logprobs": 2}, {"stop": ["bye", "w"]}, {"max_tokens": 2}])
@pytest.mark.parametrize("interval", [1, 3])
def test_streams_equal_wholes(serve, fields, interval):
    async def scenario(client):
        whole = (await client.complete("hi", **fields)).json()["choices"][0]
        reply = await client.complete("hi", stream=True, stream_interval=interval, **fields)
        choices = [e["choices"][0] for e in reply.events()]
        assert "".join(c["text"] for c in choices) == whole["text"]
        assert choices[-1]["finish_reason"] == whole["finish_reason"]
        assert choices[-1]["stop_reason"] == whole["stop_reason"]
        assert all(c["finish_reason"] is None for c in choices[:-1])
        if "logprobs" in fields:
            for name, values in whole["logprobs"].items():
                streamed = [v for c in choices if c["logprobs"] for v in c["logprobs"][name]]
                assert streamed == values

    serve([SPLIT], scenario)


def test_chat_logprobs_show_parts_of_characters(serve):
    async def scenario(client):
        choice = (await client.chat("hi", logprobs=True, top_logprobs=1)).json()["choices"][0]
        entries = choice["logprobs"]["content"]
        assert [e["token"] for e in entries] == ["ok ", "\ufffd", "\ufffd\ufffd", " bye"]
        assert b"".join(bytes(e["bytes"]) for e in entries).decode() == "ok 😊 bye"
        assert all(e["top_logprobs"][0]["bytes"] == e["bytes"] for e in entries)

    serve([SPLIT], scenario)


def test_tokens_as_ids(serve):
    async def scenario(client):
        fields = {"logprobs": 0, "return_tokens_as_token_ids": True, "return_token_ids": True}
        choice = (await client.complete("hi", **fields)).json()["choices"][0]
        ids = choice["token_ids"]
        assert choice["prompt_token_ids"] == list(b"hi")
        assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in ids[:-1]]
        assert ids[-1] == client.context.served.tokenizer.eos_token_id

    serve([PLAIN], scenario)


def test_lists_and_n_have_their_own_indices(serve):
    async def scenario(client):
        fields = {"n": 2, "temperature": 1, "seed": 7}
        body = (await client.complete(["a", "bb"], **fields)).json()
        assert [c["index"] for c in body["choices"]] == [0, 1, 2, 3]
        assert {c["text"] for c in body["choices"]} == {"one two three"}
        assert body["usage"]["prompt_tokens"] == 3, "each prompt once"
        assert body["usage"]["completion_tokens"] == 16
        events = (await client.complete(["a", "bb"], stream=True, **fields)).events()
        assert [text_of(events, i) for i in range(4)] == ["one two three"] * 4

    serve([PLAIN], scenario)


@pytest.mark.parametrize("prompt", ["ab", [97, 98], [[97, 98]], ["ab"]])
def test_forms_of_prompts(serve, prompt):
    async def scenario(client):
        body = (await client.complete(prompt, echo=True)).json()
        assert body["usage"]["prompt_tokens"] == 2
        assert [c["text"] for c in body["choices"]] == ["abone two three"]

    serve([PLAIN], scenario)


def test_echo_with_scores(serve):
    async def scenario(client):
        body = (await client.complete("né", echo=True, logprobs=1, max_tokens=1)).json()
        arrays = body["choices"][0]["logprobs"]
        assert arrays["tokens"] == ["n", "\ufffd", "\ufffd", "one "]
        assert arrays["text_offset"] == [0, 1, 1, 2]
        assert arrays["token_logprobs"][0] is None
        assert arrays["top_logprobs"][0] is None
        assert all(v is not None and v <= 0 for v in arrays["token_logprobs"][1:])

    serve([PLAIN], scenario)


def test_max_tokens_0_scores_the_prompt(serve):
    async def scenario(client):
        body = (await client.complete("abc", echo=True, logprobs=2, max_tokens=0)).json()
        choice = body["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
        assert body["usage"]["completion_tokens"] == 0
        assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
        refused = await client.complete("abc", max_tokens=0)
        assert refused.status == 400
        assert refused.error()["param"] == "max_tokens"

    serve([PLAIN], scenario)


def test_prompt_logprobs(serve):
    async def scenario(client):
        choice = (await client.complete("abc", prompt_logprobs=2)).json()["choices"][0]
        rows = choice["prompt_logprobs"]
        assert rows[0] is None
        assert len(rows) == 3
        assert all(
            2 <= len(row) <= 3 and str(ord(c)) in row for row, c in zip(rows[1:], "bc", strict=True)
        )
        assert rows[1]["98"]["decoded_token"] == "b"

    serve([PLAIN], scenario)


def test_prompt_logprobs_are_no_echo_and_as_many_as_asked(serve):
    async def scenario(client):
        fields = {"echo": True, "prompt_logprobs": 1}
        choice = (await client.complete("abc", **fields)).json()["choices"][0]
        assert choice["logprobs"] is None, "not asked for"
        assert len(choice["prompt_logprobs"]) == 3
        choice = (await client.complete("abc", logprobs=4, **fields)).json()["choices"][0]
        assert all(len(row) <= 2 for row in choice["prompt_logprobs"][1:]), "the token and 1 more"
        assert len(choice["logprobs"]["top_logprobs"][1]) >= 4
        assert len(choice["logprobs"]["tokens"]) == 3 + 3
        choice = (await client.complete("abc", echo=True, logprobs=0)).json()["choices"][0]
        assert "prompt_logprobs" not in choice
        assert len(choice["logprobs"]["tokens"]) == 3 + 3

    serve([PLAIN], scenario)


def test_logprobs_of_an_answer_without_tokens(serve):
    async def scenario(client):
        choice = (await client.chat("hi", logprobs=True)).json()["choices"][0]
        assert choice["message"]["content"] == ""
        assert choice["logprobs"] == {"content": []}
        choice = (await client.complete("hi", logprobs=1)).json()["choices"][0]
        assert choice["logprobs"]["tokens"] == []
        assert (await client.chat("hi")).json()["choices"][0]["logprobs"] is None
        assert (await client.complete("hi")).json()["choices"][0]["logprobs"] is None

    serve([[]], scenario)


def test_cached_tokens_are_told(serve):
    async def scenario(client):
        first, second = [(await client.complete("x" * 100)).json()["usage"] for _ in range(2)]
        assert first["prompt_tokens_details"]["cached_tokens"] == 0
        assert second["prompt_tokens_details"]["cached_tokens"] == 96

    serve([PLAIN], scenario)


def test_chat_echo_goes_on_with_the_last_message(serve):
    async def scenario(client):
        messages = [{"role": "user", "content": "count"}, {"role": "assistant", "content": "zero "}]
        body = {"messages": messages, "continue_final_message": True, "echo": True}
        reply = await client.post("/v1/chat/completions", body)
        assert reply.json()["choices"][0]["message"]["content"] == "zero one two three"

    serve([PLAIN], scenario)


def test_request_ids(serve):
    async def scenario(client):
        reply = await client.complete("a", request_id="mine")
        assert reply.json()["id"] == "cmpl-mine"
        ids = [(await client.get("/version")).headers["x-request-id"] for _ in range(2)]
        assert len(set(ids)) == 2
        given = await client.get("/version", headers={"X-Request-Id": "abc-1"})
        assert given.headers["x-request-id"] == "abc-1"
        odd = await client.get("/version", headers={"X-Request-Id": "a b"})
        assert odd.headers["x-request-id"] != "a b"

    serve([PLAIN], scenario)
