"""The commands in process: exit codes, what stands on stdout and stderr, and what reaches serve."""

import subprocess
import sys
from types import ModuleType

import pytest

from octavo.cli.main import main
from octavo.cli.serve import serve_command
from octavo.errors import ModelFileError

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def served(monkeypatch):
    """Stand-in for the HTTP side: what `serve` was called with; `served.raises` ends it."""

    class Calls(list):
        raises: BaseException | None = None

    calls = Calls()

    def serve(config, load="real"):
        calls.append((config, load))
        if calls.raises:
            raise calls.raises
        return 0

    module = ModuleType("octavo.api.lifecycle")
    module.serve = serve
    monkeypatch.setitem(sys.modules, "octavo.api.lifecycle", module)
    return calls


@pytest.mark.parametrize(
    "argv", [["--version"], ["serve", "--version"], ["serve", "x", "--version"]]
)
def test_version(argv, capsys):
    assert main(argv) == 0
    assert capsys.readouterr().out.startswith("octavo ")


@pytest.mark.parametrize("argv", [["-h"], ["--help"], ["serve", "-h"], ["serve", "--help"]])
def test_help_is_on_stdout(argv, capsys):
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: ")
    assert not err


@pytest.mark.parametrize(
    ("argv", "word"),
    [([], "serve"), (["sing"], "sing"), (["--port", "1"], "--port"), (["serve", "--x"], "--x")],
)
def test_usage_error(argv, word, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("usage: ")
    assert word in err.splitlines()[-1]


def test_a_wrong_value_is_one_fatal_line(served, capsys):
    assert main(["serve", "absent", "--tool-call-parser", "hermess"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("server: fatal: --tool-call-parser")
    assert err.count("\n") == 1
    assert not served


def test_a_feature_that_is_not_built_is_one_fatal_line(served, capsys):
    assert main(["serve", "absent", "--device", "cuda"]) == 1
    assert "not built" in capsys.readouterr().err
    assert not served


def test_the_configuration_reaches_serve(served):
    assert main(["serve", "some/model", "--port", "81"]) == 0
    [(config, load)] = served
    assert (config.model.model, config.server.port, load) == ("some/model", 81, "real")


def test_a_double_brings_its_own_load(served):
    def load(config):
        raise NotImplementedError

    assert serve_command([], load, prog="double", default_model="scripted", environ={}) == 0
    [(config, given)] = served
    assert config.served_name == "scripted"
    assert given is load


def test_what_the_configuration_says_is_logged_once(served, capsys):
    assert main(["serve", "--trust-remote-code"]) == 0
    lines = capsys.readouterr().err.splitlines()
    for word in ("--trust-remote-code", "--api-key", "serving smollm2"):
        assert len([line for line in lines if word in line]) == 1


def test_a_failure_of_loading_is_one_fatal_line(served, capsys):
    served.raises = ModelFileError("no model\nat x")
    assert main(["serve", "x", "--api-key", "k"]) == 1
    assert "server: fatal: no model at x\n" in capsys.readouterr().err


def test_an_unforeseen_failure_shows_its_traceback_only_when_asked(served, capsys):
    served.raises = ValueError("odd")
    assert main(["serve", "x"]) == 1
    err = capsys.readouterr().err
    assert "server: fatal: ValueError: odd" in err
    assert "Traceback" not in err
    assert main(["serve", "x", "-v"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_during_the_start(served):
    served.raises = KeyboardInterrupt()
    assert main(["serve", "x"]) == 130


def test_help_needs_nothing_heavy():
    heavy = "numpy uvicorn starlette pydantic tokenizers jinja2 rich octavo.api octavo.serving"
    code = (
        "import sys; from octavo.cli.main import main; main(['serve', '--help']);"
        f"sys.exit(' '.join(m for m in '{heavy}'.split() if m in sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr.strip() == ""
    assert "--benchmark-shutdown-fifo" in ended.stdout
