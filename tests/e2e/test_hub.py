"""`octavo serve org/name`: a model of the hub, fetched at the first start, later used offline."""

import json
import urllib.request

import pytest

from octavo.testing.hub import HubRepo, fake_hub
from octavo.testing.server import ServerFailed, running_server
from octavo.testing.tiny import tiny_llama


@pytest.fixture(scope="module")
def repos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repos")
    tiny = tiny_llama(folder / "tiny")
    gguf = tiny_llama(folder / "tiny-Q8_0.gguf", format="gguf", weight_type="Q8_0")
    return {
        "org/tiny": HubRepo.of_folder(tiny),
        "org/tiny-GGUF": HubRepo({gguf.name: gguf.read_bytes()}),
    }


def ask(server):
    body = json.dumps({"prompt": "the sea", "max_tokens": 4, "temperature": 0}).encode()
    request = urllib.request.Request(
        f"{server.url}/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


@pytest.mark.parametrize(
    ("name", "served"), [("org/tiny", "tiny"), ("org/tiny-GGUF:q8_0", "tiny-GGUF:q8_0")]
)
def test_fetched_and_then_offline(repos, tmp_path, name, served):
    with fake_hub(repos) as hub:
        with running_server(name, env=hub.environment(tmp_path)) as server:
            first = ask(server)
        asked = len(hub.requests)
        offline = hub.environment(tmp_path) | {"HF_HUB_OFFLINE": "1"}
        with running_server(name, env=offline) as server:
            second = ask(server)
    assert asked == len(hub.requests)
    assert first["model"] == served
    assert first["choices"] == second["choices"]


def test_an_architecture_that_is_not_served_ends_the_start_before_the_weights(repos, tmp_path):
    files = dict(repos["org/tiny"].files)
    files["config.json"] = files["config.json"].replace(b"LlamaFor", b"OtherFor")
    with fake_hub({"org/other": HubRepo(files)}) as hub:
        with (
            pytest.raises(ServerFailed, match=r"org/other: the architecture 'OtherForCausalLM'"),
            running_server("org/other", env=hub.environment(tmp_path)),
        ):
            pass
        assert not any("/store/" in request.path for request in hub.requests)


def test_a_model_that_is_not_there_ends_the_start(tmp_path):
    with (
        fake_hub() as hub,
        pytest.raises(ServerFailed, match=r"server: fatal: org/x: the hub has no such model"),
        running_server("org/x", env=hub.environment(tmp_path)),
    ):
        pass
