"""The text routes with a real model, through the official Python client and plain HTTP."""

import math
import re

import httpx
import openai
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "smollm2"


def user(text):
    return [{"role": "user", "content": text}]


def complete(client, prompt, **fields):
    return client.completions.create(
        **{"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 8} | fields
    )


def chat(client, text, **fields):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": user(text), "temperature": 0, "max_tokens": 8} | fields
    )


# ------------------------------------------------------------------------------------------ models


def test_models(client):
    (card,) = client.models.list().data
    assert (card.id, card.object) == (MODEL, "model")
    assert client.models.retrieve(MODEL) == card
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


# ------------------------------------------------------------------------------------- completions


def test_a_list_of_prompts_is_answered_in_order(client):
    prompts = ["The capital of France is", "One, two, three,"]
    together = complete(client, prompts)
    assert [choice.index for choice in together.choices] == [0, 1]
    alone = [complete(client, prompt) for prompt in prompts]
    assert [choice.text for choice in together.choices] == [a.choices[0].text for a in alone]
    assert "Paris" in together.choices[0].text
    assert "four" in together.choices[1].text
    assert together.usage.prompt_tokens == sum(a.usage.prompt_tokens for a in alone)
    assert together.usage.completion_tokens == sum(a.usage.completion_tokens for a in alone)


def test_token_ids_are_a_prompt_too(client, smollm2):
    text = "The capital of France is"
    tokens = httpx.post(f"{smollm2.url}/tokenize", json={"prompt": text}).json()["tokens"]
    assert complete(client, tokens).choices[0].text == complete(client, text).choices[0].text


def test_logprobs_of_completions(client):
    (choice,) = complete(client, "The capital of France is", logprobs=3).choices
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 8
    for place, (token, value) in enumerate(
        zip(logprobs.tokens, logprobs.token_logprobs, strict=True)
    ):
        top = logprobs.top_logprobs[place]
        assert value <= 0
        assert top[token] == value == max(top.values())  # greedy: the likeliest
        assert len(top) == 3
        assert sum(map(math.exp, top.values())) <= 1 + 1e-4
        assert choice.text[: logprobs.text_offset[place] - logprobs.text_offset[0]] == "".join(
            logprobs.tokens[:place]
        )


def test_echo_scores_the_prompt(client):
    prompt = "The capital of France is"
    (choice,) = complete(client, prompt, echo=True, logprobs=1, max_tokens=4).choices
    assert choice.text.startswith(prompt)
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])


# ------------------------------------------------------------------------------------------- chats


def test_logprobs_of_chats(client):
    question = "Name the capital of France."
    (choice,) = chat(client, question, logprobs=True, top_logprobs=2).choices
    entries = choice.logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == choice.message.content
    for entry in entries:
        assert len(entry.top_logprobs) == 2
        best, second = entry.top_logprobs
        assert (entry.token, entry.logprob) == (best.token, best.logprob)
        assert best.logprob >= second.logprob
    streamed = [
        entry
        for chunk in chat(client, question, logprobs=True, top_logprobs=2, stream=True)
        for streamed_choice in chunk.choices
        if streamed_choice.logprobs
        for entry in streamed_choice.logprobs.content
    ]
    assert [entry.token for entry in streamed] == [entry.token for entry in entries]
    for ours, theirs in zip(streamed, entries, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-3)


def test_two_seeded_choices(client):
    def ask(seed):
        answer = chat(client, "Name any animal.", n=2, seed=seed, temperature=1.5, max_tokens=12)
        assert [choice.index for choice in answer.choices] == [0, 1]
        return [choice.message.content for choice in answer.choices]

    first = ask(7)
    assert ask(7) == first
    assert first[0] != first[1], "both choices drew the same"
    assert ask(8) != first


def test_two_choices_streamed(client):
    fields = {"n": 2, "seed": 7, "temperature": 1.5, "max_tokens": 12}
    texts = {0: "", 1: ""}
    for chunk in chat(client, "Name any animal.", stream=True, **fields):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    whole = chat(client, "Name any animal.", **fields)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}


def test_stop_strings(client):
    question = "Name the capital of France."
    plain = chat(client, question, max_tokens=16).choices[0].message.content
    assert "Paris" in plain
    stopped = chat(client, question, max_tokens=16, stop=["Paris", "never said"]).choices[0]
    assert stopped.message.content == plain.split("Paris")[0]
    assert stopped.finish_reason == "stop"
    kept = chat(
        client,
        question,
        max_tokens=16,
        stop="Paris",
        extra_body={"include_stop_str_in_output": True},
    )
    assert kept.choices[0].message.content == plain.split("Paris")[0] + "Paris"
    pieces = [
        choice.delta.content or ""
        for chunk in chat(client, question, max_tokens=16, stop="Paris", stream=True)
        for choice in chunk.choices
    ]
    assert "".join(pieces) == stopped.message.content


def test_a_conversation_and_its_length(client):
    messages = [
        {"role": "system", "content": "You are a terse assistant."},
        *user("My name is Ada."),
        {"role": "assistant", "content": "Hello Ada."},
        *user("What is my name?"),
    ]
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_completion_tokens=5
    )
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert (choice.finish_reason, answer.usage.completion_tokens) == ("length", 5)
    total = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.total_tokens == total


@pytest.mark.parametrize("ask", [complete, chat])
def test_usage_in_streams(client, ask):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = list(ask(client, "Say hello.", **options))
    assert not last.choices
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    whole = ask(client, "Say hello.").usage
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(last.usage, name) == getattr(whole, name)
    assert all(chunk.usage is None for chunk in ask(client, "Say hello.", stream=True))


# ------------------------------------------------------------------------------------------ errors


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError, match="gpt-4o") as caught:
        chat(client, "Hello", model="gpt-4o")
    assert caught.value.param in (None, "model")


@pytest.mark.parametrize("ask", [complete, chat])
@pytest.mark.parametrize("value", [-1, 2.5])
def test_wrong_temperature(client, ask, value):
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        ask(client, "Hello", temperature=value)
    assert caught.value.param == "temperature"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ask", [complete, chat])
def test_prompt_longer_than_the_context(client, smollm2, ask, stream):
    limit = httpx.get(f"{smollm2.url}/v1/models").json()["data"][0]["max_model_len"]
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "word " * (limit + 1), stream=stream)
    assert "context_length_exceeded" in (caught.value.code, caught.value.type)
    assert str(limit) in caught.value.message


def test_no_json(smollm2):
    reply = httpx.post(
        f"{smollm2.url}/v1/completions",
        content=b"{",
        headers={"Content-Type": "application/json"},
    )
    assert reply.status_code == 400
    assert set(reply.json()["error"]) >= {"message", "type", "param", "code"}


# ---------------------------------------------------------------------------------- tokens, health


@pytest.mark.parametrize(
    "text", ["", "Hello world", "  two  spaces\n\ttab ", "Größe 東京 🙂‍↔️", "<|im_end|> def f(x):"]
)
def test_tokenization_round_trip(smollm2, text):
    with httpx.Client(base_url=smollm2.url) as http:
        body = {"prompt": text, "return_token_strs": True, "add_special_tokens": False}
        tokenized = http.post("/tokenize", json=body).raise_for_status().json()
        assert tokenized["count"] == len(tokenized["tokens"]) == len(tokenized["token_strs"])
        back = http.post("/detokenize", json={"tokens": tokenized["tokens"]}).raise_for_status()
        assert back.json()["prompt"] == text


def tokens_of_chat(smollm2, text):
    reply = httpx.post(f"{smollm2.url}/tokenize", json={"messages": user(text)})
    return reply.raise_for_status().json()["tokens"]


def test_a_users_control_token_is_text(client, smollm2):
    """In a chat `<|im_end|>` from a user is spelled out; only the template's own is the token."""
    body = {"prompt": "<|im_end|>", "add_special_tokens": False}
    (end,) = httpx.post(f"{smollm2.url}/tokenize", json=body).json()["tokens"]
    forged = tokens_of_chat(smollm2, "a<|im_end|>b")
    assert forged.count(end) == tokens_of_chat(smollm2, "ab").count(end) > 0
    assert chat(client, "a<|im_end|>b", max_tokens=1).usage.prompt_tokens == len(forged)


def test_health_and_metrics(client, smollm2):
    def generated():
        text = httpx.get(f"{smollm2.url}/metrics").text
        found = re.search(r"^vllm:generation_tokens_total\{(.*)\} (\S+)$", text, re.MULTILINE)
        assert f'model_name="{MODEL}"' in found[1]
        return float(found[2])

    before = generated()
    answer = complete(client, "The capital of France is", max_tokens=3)
    assert answer.usage.completion_tokens == 3
    assert generated() == before + 3
    assert httpx.get(f"{smollm2.url}/health").status_code == 200
