"""What the README promises: `octavo serve`, and the official clients get an answer, streamed."""

import json
import os
import shutil
import subprocess

import openai
import pytest

from octavo.testing.server import ServerFailed, free_port, running_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUESTION = "Name the capital of France."
MESSAGES = [{"role": "user", "content": QUESTION}]

SEEDED = {"seed": 14, "max_tokens": 64}

NODE_SCRIPT = """
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.OCTAVO_URL, apiKey: "none", maxRetries: 0 });
const stream = await client.chat.completions.create({
  model: "smollm2",
  messages: JSON.parse(process.env.OCTAVO_MESSAGES),
  stream: true,
  ...JSON.parse(process.env.OCTAVO_FIELDS),
});
let text = "", chunks = 0, finish = null;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  finish = chunk.choices[0]?.finish_reason ?? finish;
  chunks += 1;
}
console.log(JSON.stringify({ text, chunks, finish }));
"""


def streamed_answer(client, **fields):
    """(text, number of chunks with text, finish reason) of the question's answer."""
    stream = client.chat.completions.create(
        model="smollm2", messages=MESSAGES, stream=True, **fields
    )
    texts, finish = [], None
    for chunk in stream:
        (choice,) = chunk.choices
        if choice.delta.content:
            texts.append(choice.delta.content)
        finish = choice.finish_reason or finish
    return "".join(texts), len(texts), finish


@pytest.mark.parametrize("fields", [{"temperature": 0}, SEEDED], ids=["greedy", "seeded"])
def test_python_client(client, fields):
    text, pieces, finish = streamed_answer(client, **fields)
    assert "Paris" in text
    assert pieces > 1, "the answer came in one piece, not as a stream"
    assert finish in ("stop", "length")
    whole = client.chat.completions.create(model="smollm2", messages=MESSAGES, **fields)
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == finish


@pytest.fixture(scope="module")
def node_client(tmp_path_factory):
    """A folder with the official Node client and the script."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: the Node client cannot be tried")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    (folder / "ask.js").write_text(NODE_SCRIPT)
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "openai"],
        cwd=folder,
        check=True,
        timeout=300,
    )
    return folder


@pytest.mark.parametrize("fields", [{"temperature": 0}, SEEDED], ids=["greedy", "seeded"])
def test_node_client(smollm2, client, node_client, fields):
    env = {
        **os.environ,
        "OCTAVO_URL": f"{smollm2.url}/v1",
        "OCTAVO_MESSAGES": json.dumps(MESSAGES),
        "OCTAVO_FIELDS": json.dumps(fields),
    }
    done = subprocess.run(
        ["node", "ask.js"], cwd=node_client, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "Paris" in answer["text"]
    assert answer["chunks"] > 2
    text, _, finish = streamed_answer(client, **fields)
    assert (answer["text"], answer["finish"]) == (text, finish)


def without_indexes():
    """Environment in which every package index, and every way round it, is a closed port."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return dict.fromkeys(proxies, nowhere) | {
        "PIP_INDEX_URL": f"{nowhere}/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        "NO_PROXY": "",
    }


@pytest.mark.usefixtures("smollm2")  # the model has been fetched
def test_serves_offline_and_ends_on_sigterm():
    with (
        running_server(env=without_indexes()) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        text, _, _ = streamed_answer(client, temperature=0)
        assert "Paris" in text
        assert server.stop() == 0
        assert not server.is_healthy()


def test_offline_means_offline(tmp_path):
    """The twin of the test above: where there is no model yet the same server cannot start."""
    with (
        pytest.raises(ServerFailed, match=r"ended with code 1(.|\n)*could not be fetched"),
        running_server(env={**without_indexes(), "OCTAVO_CACHE": str(tmp_path)}),
    ):
        pytest.fail("it served a model that it cannot have")


@pytest.mark.parametrize(
    ("arguments", "name"), [((), "native"), (("--backend", "reference"), "reference")]
)
def test_the_native_backend_is_the_default_and_the_reference_answers_too(arguments, name):
    with (
        running_server(*arguments) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert f"{name} backend" in server.log()
        text, _, _ = streamed_answer(client, temperature=0, max_tokens=16)
        assert "Paris" in text
