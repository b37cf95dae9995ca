"""Error bodies: the right status, the field at fault, and nothing about the inside."""

import json
import re

import pytest

from octavo.serving.context import Context

LEAKS = re.compile(
    r"Traceback|site-packages|<class|object at|list\[|dict\[|Optional|/(?:home|tmp)/"
)
CHAT = "/v1/chat/completions"


def check(reply, status=400, param=None, *words):
    assert reply.status == status, reply.body
    error = reply.error()
    assert set(error) == {"message", "type", "param", "code"}
    assert not LEAKS.search(reply.body.decode()), reply.body
    assert len(reply.body) < 20_000
    if param is not None:
        assert error["param"] == param, error
    assert all(word in error["message"] for word in words), error
    return error


FIELDS = [
    ("temperature", "x"), ("temperature", -1), ("temperature", 1e9), ("top_p", 0), ("top_p", 1.1),
    ("min_p", 2), ("top_k", -5), ("top_k", 1.5), ("presence_penalty", 3), ("repetition_penalty", 0),
    ("seed", 2**70), ("top_k", -(10**300)), ("temperature", 10**300), ("n", 10**300),
    ("seed", "x"), ("n", 0), ("n", 100_000), ("max_tokens", "8x"),
    ("max_tokens", 1.5), ("max_tokens", -2), ("max_tokens", 0), ("min_tokens", -1),
    ("top_logprobs", 5), ("logprobs", 7), ("priority", 3), ("stream_interval", 0),
    ("stream_options", {"include_usage": True}), ("stream", "maybe"), ("stop", 7), ("stop", [""]),
    ("stop", ["a"] * 1000), ("logit_bias", {"abc": 1}), ("logit_bias", {"999999": 1}),
    ("logit_bias", {"-1": 1}), ("logit_bias", {"5": "x"}), ("logit_bias", {"5": None}),
    ("logit_bias", [5]), ("allowed_token_ids", []),
    ("allowed_token_ids", [10**9]), ("stop_token_ids", [-1]), ("bad_words", [""]),
    ("truncate_prompt_tokens", -5), ("response_format", {"type": "json_object"}),
    ("structured_outputs", {"regex": "a"}), ("guided_json", {}), ("use_beam_search", True),
    ("best_of", 2), ("thinking_token_budget", 3), ("chat_template", "x"), ("tools", []),
    ("tool_choice", "required"), ("tool_choice", "sometimes"), ("messages", []), ("cache_salt", ""),
    ("chat_template_kwargs", {"messages": []}), ("modalities", ["audio"]),
    ("chat_template_kwargs", {"add_generation_prompt": False}),
    ("chat_template_kwargs", {"continue_final_message": True}),
    ("request_id", "a b"), ("request_id", "a#0"), ("request_id", ""), ("request_id", "x" * 257),
    ("include_reasoning", False), ("length_penalty", 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_a_wrong_field_is_named(serve, field, value):
    async def scenario(client):
        error = check(await client.chat("hi", **{field: value}))
        assert error["param"].split(".")[0] == field
        assert field in error["message"]
        assert (await client.chat("hi")).status == 200

    serve([["ok"]], scenario)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_no_json(serve, number):
    async def scenario(client):
        body = (
            b'{"messages":[{"role":"user","content":"a"}],"logit_bias":{"1":%s}}' % number.encode()
        )
        check(await client.post(CHAT, body), 400, "logit_bias.1")

    serve([["ok"]], scenario)


CALL = {"function": {"name": "f"}}
TOO_MANY = [
    ("/v1/completions", {"prompt": [[1]] * (2**14 + 1)}, "prompt"),
    ("/v1/completions", {"prompt": [1] * (2**20 + 1)}, "prompt"),
    ("/v1/completions", {"prompt": ["a"] * (2**14 + 1)}, "prompt"),
    ("/v1/completions", {"prompt": [[1] * (2**20 + 1)]}, "prompt"),
    ("/v1/completions", {"prompt": "a", "stop_token_ids": [1] * (2**18 + 1)}, "stop_token_ids"),
    ("/v1/completions", {"prompt": "a", "stop": ["a"] * (2**14 + 1)}, "stop"),
    (
        "/v1/completions",
        {"prompt": "a", "logit_bias": dict.fromkeys(map(str, range(2**18 + 1)), 1)},
        "logit_bias",
    ),
    (CHAT, {"messages": [{"role": "user"}] * (2**13 + 1)}, "messages"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [CALL] * 1025}]}, "messages"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [CALL] * 1000}] * 9}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": ["a"] * 4097}]}, "messages"),
    ("/detokenize", {"tokens": [1] * (2**20 + 1)}, "tokens"),
]


@pytest.mark.parametrize(("path", "body", "field"), TOO_MANY)
def test_lists_are_bounded(serve, path, body, field):
    async def scenario(client):
        error = check(await client.post(path, body))
        assert error["param"].split(".")[0] == field
        assert "must have at most" in error["message"]

    serve([["ok"]], scenario)


def test_very_many_lists_are_not_decoded(serve):
    async def scenario(client):
        body = b'{"prompt":"a","x":[%s]}'
        reply = await client.post("/v1/completions", body % (b"[]," * 2**17)[:-1])
        assert "lists and objects" in check(reply)["message"]
        text = rb"\"[{\\" * 2**16  # in a string they are only text
        given = body % (b'"' + text + b'"')
        assert (await client.post("/v1/completions", given)).status == 200

    serve([["ok"]], scenario)


BODIES = [
    b"{", b"[]", b'"x"', b"", b"null", b"7", b"[" * 100_000, b'{"a":' + b"[" * 100_000, b"{}",
    b'{"messages":"\xff"}', b'{"messages":["hi"]}', b'{"messages":[{"content":"hi"}]}',
    b'{"messages":[{"role":1,"content":"hi"}]}', b'{"messages":{"role":"user"}}',
    '{"messages":[{"role":"user","content":"a"}]}'.encode("utf-16"), b"NaN",
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_bodies_that_are_no_request(serve, body):
    async def scenario(client):
        check(await client.post(CHAT, body))

    serve([["ok"]], scenario)


def test_deep_but_readable_bodies_are_refused_or_answered(serve):
    async def scenario(client):
        for depth in (50, 300, 900):
            nested = json.loads("[" * depth + "]" * depth)
            reply = await client.chat("hi", chat_template_kwargs={"x": nested})
            assert reply.status in (200, 400)
            reply = await client.chat("hi", unknown=nested, seed=nested)
            check(reply, 400, "seed")

    serve([["ok"]], scenario)


def test_many_errors_make_a_short_answer(serve):
    async def scenario(client):
        numbers = (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "n",
            "max_tokens",
            "min_tokens",
        )
        others = ("stream_interval", "priority", "presence_penalty", "frequency_penalty")
        wrong = dict.fromkeys((*numbers, *others), "y" * 50_000)
        error = check(await client.chat("hi", **wrong), 400, "temperature")
        assert "and 2 more" in error["message"]
        messages = [1] * 8000
        check(await client.post(CHAT, {"messages": messages}), 400, "messages.0")
        check(await client.complete("a", stop=messages), 400, "stop.0")
        error = check(await client.complete([messages, ["x"]]))
        assert error["param"].startswith("prompt.")

    serve([["ok"]], scenario)


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (None, "messages.0.content"),
        (3, "messages.0.content"),
        ([{"type": "text"}], "messages.0.content.0.text"),
        ([{"type": "hologram"}], "messages.0.content.0.type"),
        ([{"type": "image_url", "image_url": {"url": "data:,"}}], "messages.0.content.0.type"),
        ([{}], "messages.0.content.0.type"),
    ],
)
def test_contents_that_cannot_be_read(serve, content, param):
    async def scenario(client):
        check(await client.chat(content), 400, param)

    serve([["ok"]], scenario)


def test_tool_choices(serve):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]

    async def scenario(client):
        for choice in ("none", "auto", None):
            assert (await client.chat("x", tools=tools, tool_choice=choice)).status == 200
            assert (await client.chat("x", tool_choice=choice)).status == 200
        absent = {"type": "function", "function": {"name": "g"}}
        check(await client.chat("x", tools=tools, tool_choice=absent), 400, "tool_choice", "'g'")
        refused = await client.chat("x", tools=tools, parallel_tool_calls=False)
        check(refused, 400, "parallel_tool_calls")
        assert (await client.chat("x", tools=tools, parallel_tool_calls=True)).status == 200
        assert (await client.chat("x", parallel_tool_calls=False)).status == 200, (
            "no tools, no calls"
        )

    serve([["ok"]], scenario)


def test_unknown_model_is_named_but_not_at_length(serve):
    async def scenario(client):
        for path, field in (
            (CHAT, {"messages": [{"role": "user", "content": "a"}]}),
            ("/v1/completions", {"prompt": "a"}),
            ("/tokenize", {"prompt": "a"}),
            ("/detokenize", {"tokens": [1]}),
        ):
            error = check(
                await client.post(path, field | {"model": "other"}), 404, "model", "other"
            )
            assert (error["code"], error["type"]) == ("model_not_found", "NotFoundError")
            reply = await client.post(path, field | {"model": "x" * 10_000})
            assert len(reply.body) < 1000
        assert (await client.get("/v1/models/other")).status == 404
        assert (await client.get("/v1/models/scripted")).status == 200

    serve([["ok"]], scenario)


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_names_both_lengths(serve, stream):
    async def scenario(client):
        for length in (100, 101, 5000):
            reply = await client.complete("a" * length, stream=stream)
            error = check(reply, 400, "prompt", "100", str(length))
            assert error["code"] == "context_length_exceeded"
        error = check(await client.complete([97] * 150, stream=stream), 400, None, "100", "150")
        assert error["code"] == "context_length_exceeded"
        cut = await client.complete("a" * 150, truncate_prompt_tokens=90)
        assert cut.json()["usage"]["prompt_tokens"] == 90
        for keep, count in ((90, 90), (-1, 99)):
            for send in (client.complete, client.chat):
                cut = await send("a" * 5000, truncate_prompt_tokens=keep, max_tokens=1)
                assert cut.json()["usage"]["prompt_tokens"] == count

    serve([["ok"]], scenario, max_model_len=100)


def test_more_than_the_room_is_cut_to_it(serve):
    async def scenario(client):
        body = (await client.complete("a" * 60, max_tokens=10**12)).json()
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["completion_tokens"] == 40

    serve([["x"] * 200], scenario, max_model_len=100)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/json; charset=utf-16"}, 400),
        ({"Content-Encoding": "gzip"}, 400),
        ({"Content-Length": str(2**40)}, 413),
        ({"Content-Type": "application/json; charset=UTF-8", "Content-Encoding": "identity"}, 200),
    ],
)
def test_headers(serve, headers, status):
    async def scenario(client):
        reply = await client.post("/v1/completions", {"prompt": "a"}, headers=headers)
        assert reply.status == status
        if status != 200:
            check(reply, status)

    serve([["ok"]], scenario)


def test_body_larger_than_allowed_though_not_announced(serve):
    async def scenario(client):
        check(await client.complete("a" * 2000), 413, None, "1024", "--max-body-bytes")

    serve([["ok"]], scenario, "--max-body-bytes", "1024")


def test_a_body_that_stops_coming(serve, monkeypatch):
    monkeypatch.setattr("octavo.api.limits.BODY_PAUSE_S", 0.05)

    async def scenario(client):
        reply = await client.send("POST", "/v1/completions", b'{"prom', whole=False)
        error = check(reply, 408, None, "6 bytes")
        assert error["code"] == 408
        assert reply.headers["connection"] == "close"

    serve([["ok"]], scenario)


def test_large_bodies_are_parsed_on_a_worker(serve, monkeypatch):
    async def scenario(client):
        threads = []
        run = Context.run

        async def watched(context, work, *args):
            threads.append(work)
            return await run(context, work, *args)

        monkeypatch.setattr(Context, "run", watched)
        assert (await client.complete("a", padding="x" * 2**18)).status == 200
        assert len(threads) == 2, "the body, then the prompt"
        assert (await client.complete("a")).status == 200
        assert len(threads) == 3, "only the prompt"
        check(await client.complete(7, padding="x" * 2**18), 400, "prompt")
        check(await client.post(CHAT, b"[" * 2**17 + b" " * 2**18), 400, None, "nested")

    serve([["ok"]], scenario)


def test_unknown_paths_and_methods(serve):
    async def scenario(client):
        assert check(await client.get("/v1/nothing"), 404)["code"] == 404
        check(await client.get("/v1/completions"), 405)
        for path in ("/abort_requests", "/reset_prefix_cache"):
            check(await client.post(path, {}), 404)
        check(await client.get("/tokenizer_info"), 404)

    serve([["ok"]], scenario)


def test_unknown_fields_are_ignored(serve):
    async def scenario(client):
        reply = await client.chat("hi", no_such_field=1, Temperature=9, user="me", metadata={})
        assert reply.status == 200

    serve([["ok"]], scenario)
