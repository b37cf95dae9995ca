"""docs/operations.md: its messages are real, its metrics exist, its unit runs a right command."""

import inspect
import re
import shlex
import socket
from pathlib import Path

import pytest

from octavo.cli.main import main
from octavo.config import parse_args
from octavo.metrics import Metrics
from octavo.testing.hub import HubRepo
from octavo.testing.model_files import write_gguf
from octavo.testing.tiny import tiny_llama

pytestmark = pytest.mark.usefixtures("restored_logging")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text("utf-8")
# What stands for something else in a message of the page.
PLACEHOLDERS = re.compile(r"\b(ADDRESS|NAME|QUANT|N)\b")


def messages():
    """The messages of the table at the end, as patterns."""
    table = PAGE[PAGE.index("## When it does not work") :]
    found = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    return {text: re.compile(PLACEHOLDERS.sub(".+", re.escape(text))) for text in found}


def taken_port(tmp_path, hub):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        main(["serve", str(tmp_path), "--host", "127.0.0.1", "--port", port])


def serve(*argv):
    main(["serve", *map(str, argv), "--host", "127.0.0.1", "--port", "0"])


def other_folder(tmp_path, hub):
    folder = tiny_llama(tmp_path / "tiny")
    config = (folder / "config.json").read_text().replace("LlamaFor", "OtherFor")
    (folder / "config.json").write_text(config)
    serve(folder)


def gated(tmp_path, hub):
    hub.repos["org/x"] = HubRepo({}, is_gated=True)
    serve("org/x")


def other_quant(tmp_path, hub):
    hub.repos["org/x"] = HubRepo({"x-Q8_0.gguf": b""})
    serve("org/x:Q4_0")


def full_disk(tmp_path, hub, monkeypatch):
    from octavo.weights import hub_fetch

    hub.repos["org/x"] = HubRepo({"x.gguf": b"x"})
    monkeypatch.setattr(hub_fetch.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0}))
    serve("org/x")


def unreachable(tmp_path, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    serve("org/x")


CAUSES = {
    "cannot listen on ADDRESS: Address already in use": taken_port,
    "no model at NAME": lambda tmp_path, hub: serve("absent"),
    "the folder has no config.json": lambda tmp_path, hub: serve(tmp_path),
    "the architecture NAME is not known": other_folder,
    "the GGUF architecture NAME is not supported": lambda tmp_path, hub: serve(
        write_gguf(tmp_path / "x.gguf", {"general.architecture": "other"}, {})
    ),
    "is not built in this version of Octavo": lambda tmp_path, hub: serve("--device", "cuda"),
    "the hub has no such model": lambda tmp_path, hub: serve("org/absent"),
    "it is gated: ask for access at": gated,
    "cannot be reached": unreachable,
    "there is no QUANT; there are": other_quant,
    "MB are to be fetched, but": full_disk,
    "is a KV cache of N MiB, but N MiB are free": lambda tmp_path, hub: serve(
        tiny_llama(tmp_path / "tiny"), "--num-blocks", 10**7, "--block-size", 128
    ),
    "does not fit the KV cache of": lambda tmp_path, hub: serve(
        tiny_llama(tmp_path / "tiny"), "--kv-cache-memory", "64K", "--max-model-len", 2048
    ),
    "is above the model's own length of": lambda tmp_path, hub: serve(
        tiny_llama(tmp_path / "tiny"), "--max-model-len", 10**6
    ),
}
# These are lines of a log; other tests provoke them.
LOGGED = {
    "the model has no chat template": "octavo/text/template.py",
    "no kernels for the type of some matrices": "octavo/backends/native_program.py",
    "the drain timeout is over: ending N requests": "octavo/api/lifecycle.py",
}


def test_every_message_of_the_table_is_accounted_for():
    assert set(messages()) == set(CAUSES) | set(LOGGED)


@pytest.mark.parametrize("text", CAUSES)
def test_a_message_is_what_is_printed(text, tmp_path, hub, monkeypatch, capsys):
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    cause = CAUSES[text]
    wanted = inspect.signature(cause).parameters
    given = {"tmp_path": tmp_path, "hub": hub, "monkeypatch": monkeypatch}
    cause(**{name: given[name] for name in wanted})
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("server: fatal: ")
    assert messages()[text].search(last), last


@pytest.mark.parametrize("text", LOGGED)
def test_a_logged_message_is_in_the_code(text):
    code = (Path(__file__).resolve().parents[2] / LOGGED[text]).read_text("utf-8")
    assert text.replace(" N ", " %d ") in code


def test_every_metric_exists():
    metrics = Metrics("m", 100, {"block_size": "32"})
    metrics.bind(lambda: type("Stats", (), {"running": 0, "waiting": 0, "kv_cache_usage": 0.0}))
    there = set(re.findall(r"^([a-z_:]+)", metrics.render().decode(), re.MULTILINE))
    named = set(re.findall(r"`(vllm:[a-z_]+)`", PAGE))
    assert len(named) > 12
    for name in named:
        assert name in there or f"{name}_count" in there, name


def test_the_unit_runs_a_command_that_is_right():
    unit = re.search(r"<!-- unit -->\n```ini\n(.*?)```", PAGE, re.DOTALL)[1]
    command = re.search(r"^ExecStart=(.*?[^\\])\n", unit, re.DOTALL | re.MULTILINE)[1]
    program, serve_word, *argv = shlex.split(command.replace("\\\n", " "))
    assert (program, serve_word) == ("/opt/octavo/bin/octavo", "serve")
    config = parse_args(argv, environ={})
    stop_s = int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[1])
    assert stop_s >= config.server.drain_timeout_s + 10


def test_the_user_and_the_folder_of_the_unit_are_made_before_they_are_used():
    unit = re.search(r"<!-- unit -->\n```ini\n(.*?)```", PAGE, re.DOTALL)[1]
    caches = re.search(r"^Environment=(HF_HOME=\S+ OCTAVO_CACHE=\S+)", unit, re.MULTILINE)[1]
    order = ["useradd ", "install -d -o octavo", "runuser -u octavo", caches, "models pull"]
    places = [PAGE.find(words) for words in order]
    assert -1 not in places
    assert places == sorted(places)


def test_every_flag_and_link_is_there():
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    known = (Path(__file__).resolve().parents[2] / "docs" / "flags.md").read_text("utf-8")
    of_others = {"--stop-timeout"}  # of container tools
    of_others |= {"--system", "--user-group", "--home-dir", "--shell"}  # of useradd
    assert not {flag for flag in flags - of_others if f"`{flag}" not in known}
    for link in re.findall(r"\]\(([\w./-]+)\)", PAGE):
        assert (Path(__file__).resolve().parents[2] / "docs" / link).exists(), link
