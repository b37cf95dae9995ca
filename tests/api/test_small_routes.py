"""Models, health, tokens, developers' routes, metrics, keys, the OpenAPI document."""

import asyncio

import pytest


def test_models_and_version(serve):
    async def scenario(client):
        card = (await client.get("/v1/models")).json()["data"][0]
        assert (card["id"], card["object"], card["max_model_len"]) == ("shiny", "model", 4096)
        assert (await client.get("/v1/models/shiny")).json() == card
        assert (await client.get("/health")).body == b""
        assert (await client.get("/ping")).status == 200
        assert (await client.post("/ping", b"")).status == 200
        assert (await client.get("/version")).json()["version"][0].isdigit()

    serve([["x"]], scenario, "--served-model-name", "shiny")


def test_server_info_hides_secrets_and_folders(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush-key")
    monkeypatch.setenv("VLLM_PREFIX_CACHING_HASH_SEED", "hush-seed")
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    monkeypatch.setenv("VT_SERVER_SSE_PING_S", "7")

    async def scenario(client):
        for form in ("text", "json"):
            reply = await client.get(f"/server_info?config_format={form}")
            assert reply.status == 200
            assert set(reply.json()) == {"vllm_config", "vllm_env", "system_env"}
            assert b"hush" not in reply.body
            assert str(tmp_path).encode() not in reply.body
        shown = reply.json()["vllm_config"]
        assert shown["server"]["api_key"] == "set"
        assert shown["cache"]["prefix_caching_hash_seed"] == "set"
        assert shown["video"]["video_workdir"] == tmp_path.name
        assert shown["cache"]["block_size"] == 32
        seed = {"VLLM_PREFIX_CACHING_HASH_SEED": "set", "VT_SERVER_SSE_PING_S": "7"}
        assert reply.json()["vllm_env"] == seed, "only what options are read from"
        assert (await client.get("/server_info?config_format=xml")).status == 400

    flags = ("--api-key", "hush", "--video-workdir", str(tmp_path))
    serve([["x"]], scenario, *flags, environ={"VLLM_PREFIX_CACHING_HASH_SEED": "hush-seed"})


def test_tokens_go_round(serve):
    async def scenario(client):
        text = "Grüße, 日本\n"
        reply = await client.post("/tokenize", {"prompt": text, "return_token_strs": True})
        body = reply.json()
        assert body["count"] == len(body["tokens"]) == len(body["token_strs"])
        assert body["max_model_len"] == 4096
        back = await client.post("/detokenize", {"tokens": body["tokens"]})
        assert back.json() == {"prompt": text}
        for tokens in ([10**9], [-1], "x", ["x"]):
            bad = await client.post("/detokenize", {"tokens": tokens})
            assert bad.status == 400
            assert bad.error()["param"].startswith("tokens")

    serve([["x"]], scenario)


def test_chat_is_tokenised_as_it_is_answered(serve):
    async def scenario(client):
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
        body = (await client.post("/tokenize", {"messages": messages})).json()
        assert bytes(body["tokens"]).decode() == "system: s\nuser: hi\nassistant:"
        assert body["token_strs"] is None
        reply = await client.post("/v1/chat/completions", {"messages": messages})
        assert reply.json()["usage"]["prompt_tokens"] == body["count"]
        both = {"add_generation_prompt": True, "continue_final_message": True}
        assert (await client.post("/tokenize", {"messages": messages} | both)).status == 400

    serve([["x"]], scenario)


def test_template_variables(serve):
    shown_tools = "{{ tools | tojson if tools else '-' }}"
    template = shown_tools + "|{{ effort }}|{{ enable_thinking }}|{{ messages | tojson }}"

    async def scenario(client):
        async def rendered(**fields):
            body = {"messages": [{"name": None, "content": "x", "role": "user"}]} | fields
            tokens = (await client.post("/tokenize", body)).json()["tokens"]
            return bytes(tokens).decode().split("|")

        assert (await rendered())[0] == "-"
        assert (await rendered())[3] == '[{"content": "x", "role": "user"}]', "in the given order"
        assert (await rendered(chat_template_kwargs={"effort": "low"}))[1] == "low"
        assert (await rendered(reasoning_effort="none"))[2] == "False"
        assert (await rendered(reasoning_effort="high"))[2] == "True"
        tool = {"function": {"parameters": {}, "name": "f"}, "type": "function"}
        shown = '[{"function": {"parameters": {}, "name": "f"}, "type": "function"}]'
        assert (await rendered(tools=[tool]))[0] == shown

    serve([["x"]], scenario, chat_template=template)


def test_tokenizer_info(serve):
    async def scenario(client):
        body = (await client.get("/tokenizer_info")).json()
        assert {"tokenizer_class", "vocab_size", "model_max_length"} <= set(body)

    serve([["x"]], scenario, "--enable-tokenizer-info-endpoint")


DEV = "--enable-server-dev-mode"


def test_abort(serve):
    async def scenario(client):
        fields = {"stream": True, "request_id": "mine"}
        mine = asyncio.create_task(client.chat("go", n=2, temperature=1, **fields))
        other = asyncio.create_task(client.complete("go", max_tokens=-1))
        await client.until_running(3)
        again = await client.chat("go", request_id="mine")
        assert (again.status, again.error()["param"]) == (400, "request_id")
        ids = {"request_ids": ["chatcmpl-mine", "no-such"]}
        reply = await client.post("/abort_requests", ids)
        assert reply.json() == {"status": "aborted", "aborted": 1}
        events = (await mine).events()
        reasons = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
        assert reasons == ["abort", "abort"]
        assert (await client.post("/abort_requests", ids)).json()["aborted"] == 0
        assert (await client.post("/abort_requests", b"")).json()["aborted"] == 1, "all"
        assert (await other).json()["choices"][0]["finish_reason"] == "abort"
        await client.until_idle()

    serve([["tick "] * 3000], scenario, DEV, step_delay_ms=5)


@pytest.mark.parametrize(
    "body", [b"{", {"ids": ["a"]}, {"request_ids": 3}, {"request_ids": [3]}, [1]]
)
def test_malformed_abort_has_its_own_body(serve, body):
    async def scenario(client):
        reply = await client.post("/abort_requests", body)
        assert (reply.status, list(reply.json())) == (400, ["detail"])

    serve([["x"]], scenario, DEV)


def test_reset_prefix_cache(serve):
    async def scenario(client):
        async def cached():
            usage = (await client.complete("x" * 100)).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        assert [await cached(), await cached()] == [0, 96]
        reply = await client.post("/reset_prefix_cache?reset_running_requests=true", b"")
        assert reply.json() == {"success": True}
        assert await cached() == 0
        assert (
            await client.post("/reset_prefix_cache?reset_running_requests=x", b"")
        ).status == 400
        assert (await client.post("/reset_prefix_cache?reset_external=true", b"")).status == 400

    serve([["x"]], scenario, DEV)


def test_metrics(serve):
    async def scenario(client):
        await client.complete(["secret", "b"], n=2, temperature=1)
        reply = await client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"secret" not in reply.body
        longest = b'vllm:request_max_num_generation_tokens_%s{engine="0",model_name="scripted"} %s'
        assert longest % (b"count", b"1.0") in reply.body, "once a request, whatever its choices"
        assert longest % (b"sum", b"2.0") in reply.body
        assert b'vllm:request_params_n_sum{engine="0",model_name="scripted"} 2.0' in reply.body
        assert b'vllm:prompt_tokens_total{engine="0",model_name="scripted"} 14.0' in reply.body

    serve([["x"]], scenario)


def test_what_is_longer_than_the_model_is_counted(serve):
    async def scenario(client):
        reply = await client.post("/tokenize", {"prompt": "a" * 5000})
        assert (reply.json()["count"], reply.json()["max_model_len"]) == (5000, 100)
        messages = [{"role": "user", "content": "a" * 5000}]
        assert (await client.post("/tokenize", {"messages": messages})).json()["count"] > 5000

    serve([["x"]], scenario, max_model_len=100)


def test_metrics_can_be_switched_off(serve):
    async def scenario(client):
        assert (await client.get("/metrics")).status == 404

    serve([["x"]], scenario, "--disable-metrics")


def test_api_keys(serve):
    async def scenario(client):
        for path in ("/v1/models", "/v1/nothing"):
            for given in (None, "Bearer wrong", "one", "Bearer", "Bearer one two", "Basic one"):
                headers = {} if given is None else {"Authorization": given}
                reply = await client.get(path, headers=headers)
                assert reply.status == 401, given
                assert reply.error()["code"] == "invalid_api_key"
                assert ("is wrong" in reply.error()["message"]) == (given is not None)
                assert reply.headers["x-request-id"]
        for key in ("one", "zwö"):
            sent = key.encode().decode("latin-1")
            reply = await client.get("/v1/models", headers={"Authorization": f"bearer  {sent}"})
            assert reply.status == 200
        for path in ("/health", "/version", "/metrics"):
            assert (await client.get(path)).status == 200

    serve([["x"]], scenario, "--api-key", "one", "--api-key", "zwö")


def test_openapi_document(serve):
    async def scenario(client):
        document = (await client.get("/openapi.json")).json()
        assert {"/v1/chat/completions", "/v1/completions", "/v1/models/{model}"} <= set(
            document["paths"]
        )
        schemas = document["components"]["schemas"]
        assert schemas["ChatBody"]["properties"]["temperature"]["maximum"] == 2
        assert "ErrorBody" in schemas
        text = str(document)
        for reference in text.split("'$ref': '#/components/schemas/")[1:]:
            assert reference.split("'")[0] in schemas

    serve([["x"]], scenario)
