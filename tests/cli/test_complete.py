"""`octavo complete`: one prompt from a flag or stdin, its completion exactly, exit codes."""

import io
import json
import subprocess
import sys
from functools import partial

import msgspec
import pytest

from octavo.cli import complete
from octavo.cli.ask import Told
from octavo.cli.complete import complete_command
from octavo.cli.main import main
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script

SCRIPT = {"replies": [{"pieces": ["a ", "b ", "c"]}, {"pieces": ["other"], "when": "x\n"}]}
LOAD = partial(load_scripted, script=msgspec.convert(SCRIPT, Script))


def piped(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))


def test_a_prompt_by_flag(capsys):
    assert complete_command(["--prompt", "x"], LOAD) == 0
    assert capsys.readouterr() == ("a b c", "")


@pytest.mark.parametrize(
    ("data", "answer"), [(b"x", "a b c"), (b"x\n", "a b c"), (b"x\n\n", "other")]
)
def test_a_prompt_on_stdin(monkeypatch, capsys, data, answer):
    piped(monkeypatch, data)
    assert complete_command([], LOAD) == 0
    assert capsys.readouterr().out == answer


def test_flags_reach_the_model(capsys):
    assert complete_command(["name", "--prompt", "x", "--stop", "b", "--stop", "z"], LOAD) == 0
    assert capsys.readouterr().out == "a "
    assert complete_command(["--prompt=x", "--max-tokens", "1"], LOAD) == 0
    assert capsys.readouterr().out == "a "


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [(b"", 2, "is empty"), (b"\n", 2, "is empty"), (b"\xff", 1, "no UTF-8")],
)
def test_no_prompt(monkeypatch, capsys, data, code, words):
    piped(monkeypatch, data)
    assert complete_command([], LOAD) == code
    assert words in capsys.readouterr().err


def test_an_error_of_the_request_is_one_fatal_line(capsys):
    assert complete_command(["--prompt", "x" * 50, "--max-model-len", "32"], LOAD) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("complete: fatal: the prompt has 50 tokens")
    assert err.count("\n") == 1


def test_an_interrupt_is_told_by_the_exit_code(monkeypatch):
    def stopped(answer):
        answer.close()
        return Told("a", None, True)

    monkeypatch.setattr(complete, "tell", stopped)
    assert complete_command(["--prompt", "x"], LOAD) == 130


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_help_needs_nothing_heavy(command, capsys):
    assert main([command, "--help"]) == 0
    assert "--top-p SHARE" in capsys.readouterr().out
    heavy = "numpy pydantic tokenizers jinja2 rich http.client octavo.serving"
    code = (
        f"import sys; from octavo.cli.main import main; main(['{command}', '--help']);"
        f"sys.exit(' '.join(m for m in '{heavy}'.split() if m in sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr.strip() == ""


def test_whoever_reads_may_go_away(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"pieces": ["tick "], "end": False}]}))
    code = (
        "import sys; from functools import partial; from pathlib import Path;"
        "from octavo.cli.complete import complete_command;"
        "from octavo.testing.scripted.load import load_scripted;"
        "from octavo.testing.scripted.script import Script;"
        f"load = partial(load_scripted, script=Script.read(Path({str(script)!r})));"
        "sys.exit(complete_command(['--prompt', 'x', '--max-tokens', '4000'], load))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.read(5) == b"tick "
    process.stdout.close()
    assert process.wait(60) == 141
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
