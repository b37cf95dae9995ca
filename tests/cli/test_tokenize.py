"""`octavo tokenize`: what it prints, and that it agrees with the tokenizer and needs no weights."""

import io
import json
import os
import subprocess
import sys

import pytest

from octavo.cli.main import main
from octavo.testing.tiny import tiny_llama
from octavo.text.opening import open_tokenizer

TEXT = "the sea <|im_end|> and\x1b[31m ü"


@pytest.fixture(scope="module", params=["folder", "gguf"])
def model(request, tmp_path_factory):
    name = "tiny" if request.param == "folder" else "tiny.gguf"
    return tiny_llama(tmp_path_factory.mktemp("tokenize") / name, format=request.param)


@pytest.fixture
def ran(model, capsys):
    """Runs the command on the model; (exit code, stdout, stderr)."""

    def run(*argv):
        code = main(["tokenize", str(model), *argv])
        return code, *capsys.readouterr()

    return run


def test_the_forms_agree(model, ran):
    expected = open_tokenizer(model).encode(TEXT)
    code, out, _ = ran(TEXT, "--ids")
    assert (code, out) == (0, " ".join(map(str, expected)) + "\n")
    assert ran(TEXT, "--count")[1] == f"{len(expected)}\n"
    found = json.loads(ran(TEXT, "--json")[1])
    assert (found["tokens"], found["count"]) == (expected, len(expected))
    lines = ran(TEXT)[1].splitlines()
    assert [int(line.split()[0]) for line in lines[1:-1]] == expected
    assert lines[-1] == f"{len(expected)} tokens"


def test_the_table_shows_pieces_and_no_control_characters(ran):
    out = ran(TEXT)[1]
    assert "Ġthe" not in out.splitlines()[1]
    assert "control token" in next(line for line in out.splitlines() if "<|im_end|>" in line)
    assert "\\x1b" in out
    assert "\x1b" not in out
    assert "b'\\xc3'" in out, "a part of a character is shown as bytes"


def test_control_tokens_may_be_ordinary_text(model, ran):
    special = open_tokenizer(model).special_ids
    assert special & set(json.loads(ran(TEXT, "--json")[1])["tokens"])
    assert not special & set(json.loads(ran(TEXT, "--json", "--no-parse-special")[1])["tokens"])


def test_special_tokens_around_the_text(tmp_path, capsys):
    folder = tiny_llama(tmp_path / "tiny")
    config = json.loads((folder / "tokenizer_config.json").read_text()) | {"add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert main(["tokenize", str(folder), "a", "--count"]) == 0
    assert main(["tokenize", str(folder), "a", "--count", "--no-add-special-tokens"]) == 0
    assert capsys.readouterr().out == "2\n1\n"


@pytest.mark.parametrize("argv", [(), ("-",)])
def test_standard_input(ran, monkeypatch, argv):
    stdin = io.TextIOWrapper(io.BytesIO(b"the sea\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert ran("--json", *argv)[1] == ran("the sea", "--json")[1]


def test_ids_become_text_again(model, capfdbinary):
    ids = " ".join(map(str, open_tokenizer(model).encode(TEXT)))
    code = main(["tokenize", str(model), "--decode", "--", ids])
    assert (code, capfdbinary.readouterr().out.decode()) == (0, TEXT)
    assert main(["tokenize", str(model), "--decode", "--json", f"[{ids.replace(' ', ', ')}]"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["prompt"] == TEXT


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("a", "--ids", "--json"), 2, "exclude each other"),
        (("1", "--decode", "--ids"), 2, "--ids is for text"),
        (("1", "--decode", "--no-parse-special"), 2, "--parse-special is for text"),
        (("1 x", "--decode"), 2, "whole numbers, not 'x'"),
        (("[1, 2", "--decode"), 2, "a [ at the start and a ] at the end belong together"),
        (("1]", "--decode"), 2, "belong together"),
        (("[1, [2]", "--decode"), 2, "whole numbers, not '[2'"),
        (("a\udcff", "--count"), 1, "the text is no UTF-8: character 1 is '\\udcff'"),
        (("99999", "--decode"), 1, "tokenize: fatal: the id 99999 is not in the vocabulary"),
        (("a", "b"), 2, "MODEL and TEXT may stand without a flag, but 3 were given"),
    ],
)
def test_refusals(ran, argv, code, words):
    got, out, err = ran(*argv)
    assert (got, out) == (code, "")
    assert words in err.splitlines()[-1]


def test_what_standard_output_cannot_write_is_spelled(model):
    code = f"import sys; sys.argv[1:] = ['tokenize', {str(model)!r}, 'é']; " + (
        "from octavo.cli.main import main; sys.exit(main())"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\xe9" in ended.stdout or "\\xc3" in ended.stdout


def test_an_unforeseen_failure_names_no_flag_that_is_not_there(model, ran, monkeypatch):
    monkeypatch.setattr("octavo.cli.tokenize.encode", lambda *_: 1 / 0)
    code, _, err = ran("a")
    assert (code, err) == (1, "tokenize: fatal: ZeroDivisionError: division by zero\n")


def test_a_message_is_safe_for_a_terminal(capsys):
    assert main(["tokenize", "no\x1b[2Jmodel", "a"]) == 1
    assert "no model at no\\x1b[2Jmodel: name" in capsys.readouterr().err


def test_a_model_is_needed(capsys):
    assert main(["tokenize"]) == 2
    assert "MODEL is needed" in capsys.readouterr().err


def test_no_weights_and_no_server_are_loaded(model):
    code = (
        "import sys; from octavo.cli.main import main; "
        f"main(['tokenize', {str(model)!r}, 'a']);"
        "heavy = 'octavo.backends octavo.api octavo.engine octavo.models uvicorn pydantic';"
        "sys.exit(' '.join(m for m in heavy.split() if m in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.strip() == ""
