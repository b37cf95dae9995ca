"""`octavo chat`: turns, commands, what Ctrl-C and Ctrl-D do, pipes; and a real terminal."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from functools import partial

import msgspec
import pytest

from octavo.cli.ask import SAMPLING, AskOptions, Piece
from octavo.cli.chat import BLOCK, Chat, chat_command, read_text
from octavo.config.fields import flags_of
from octavo.errors import EngineFailure
from octavo.serving.params import BOUNDS
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script
from octavo.testing.server import running_server

HELLO = {"replies": [{"pieces": ["Hel", "lo"]}]}


def load(script=HELLO):
    return partial(load_scripted, script=msgspec.convert(script, Script))


def lines(*texts):
    """A terminal on which these lines are typed, and then Ctrl-D. An exception is raised."""
    typed = iter(texts)

    def read_line(prompt):
        try:
            text = next(typed)
        except StopIteration:
            raise EOFError from None
        if isinstance(text, BaseException):
            raise text
        return text

    return read_line


class Double:
    """A source that answers with given pieces; a callable among them is called in its turn."""

    name, where = "double", "in this test"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def chat(self, messages, params):
        self.asked.append([(m["role"], m["content"]) for m in messages])
        return DoubleAnswer(self.answers.pop(0))


class DoubleAnswer:
    def __init__(self, pieces):
        self.pieces = pieces
        self.closed = threading.Event()

    def __iter__(self):
        for piece in self.pieces:
            if callable(piece):
                piece()
                assert self.closed.wait(10), "nobody ended the answer"
                return
            if isinstance(piece, Exception):
                raise piece
            yield piece if isinstance(piece, Piece) else Piece(piece)

    def close(self):
        self.closed.set()


def interrupt():
    signal.raise_signal(signal.SIGINT)


def chatted(*typed, answers, system=None, is_terminal=True):
    """What the double was asked when these lines were typed."""
    double = Double(*answers)
    assert Chat(double, {}, system, is_terminal).run(lines(*typed)) == 0
    return double.asked


# ---------------------------------------------------------------------------------- turns


def test_answers_and_questions_become_history(capsys):
    asked = chatted("one", "", "two", answers=[["a", "b"], ["c"]], system="be short")
    assert asked[1] == [
        ("system", "be short"),
        ("user", "one"),
        ("assistant", "ab"),
        ("user", "two"),
    ]
    assert capsys.readouterr().out == "ab\nc\n\n"


def test_an_interrupt_stops_the_answer_and_what_came_is_kept(capsys):
    asked = chatted("one", "two", answers=[["par", interrupt], ["c"]])
    assert asked[1] == [("user", "one"), ("assistant", "par"), ("user", "two")]
    assert "[stopped]" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_question_that_was_stopped_before_its_answer_is_forgotten(capsys):
    asked = chatted("one", "two", answers=[[interrupt], ["c"]])
    assert asked[1] == [("user", "two")]
    assert "forgotten" in capsys.readouterr().err


def test_an_interrupt_at_the_prompt_only_takes_the_line():
    assert len(chatted(KeyboardInterrupt(), "one", answers=[["a"]])) == 1


def test_an_error_is_shown_and_the_question_forgotten(capsys):
    asked = chatted("one", "two", answers=[["x", EngineFailure("step\nfailed")], ["c"]])
    assert asked[1] == [("user", "two")]
    assert "[error: step failed]" in capsys.readouterr().err


def test_a_cut_answer_says_so(capsys):
    chatted("one", answers=[["a", Piece("", "length")]])
    assert "cut" in capsys.readouterr().err


def test_commands(capsys):
    asked = chatted(
        *("one", "/clear", "two", "/system be kind", "three", "/system", "four"),
        *("/help", "/nothing", "/etc/hosts?", "/exit", "never asked"),
        answers=[["a"]] * 5,
        system="s",
    )
    assert asked[1] == [("system", "s"), ("user", "two")]
    assert asked[2] == [("system", "be kind"), ("user", "three")]
    assert asked[3] == [("user", "four")]
    assert asked[4][-1] == ("user", "/etc/hosts?")
    assert len(asked) == 5
    out, err = capsys.readouterr()
    assert "/clear" in out
    assert "unknown command /nothing" in err


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["one"], "one"),
        (["one\\", "two\\", "three"], "one\ntwo\nthree"),
        (["one\\"], "one\n"),
        ([BLOCK, "a", "", " b\\", BLOCK], "a\n\n b\\"),
        ([BLOCK, "a"], "a"),
        (["one\\", ""], "one\n"),
    ],
)
def test_a_text_may_have_many_lines(typed, text):
    assert read_text(lines(*typed)).rstrip("\n") == text.rstrip("\n")


def test_the_end():
    with pytest.raises(EOFError):
        read_text(lines())


# ------------------------------------------------------------------------------ the whole command


def piped(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))


def test_pipes(monkeypatch, capsys):
    piped(monkeypatch, b"one\n\ntwo")
    assert chat_command(["--max-tokens", "1"], load()) == 0
    out, err = capsys.readouterr()
    assert out == "Hel\nHel\n"
    assert (
        err.splitlines() == ["[the answer is cut: by --max-tokens, or by the model's length]"] * 2
    )


def test_an_error_ends_a_pipe(monkeypatch, capsys):
    piped(monkeypatch, b"one\ntwo\n")
    assert chat_command(["--max-model-len", "4"], load()) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("chat: fatal: the prompt has")
    assert err.count("\n") == 1


def test_an_interrupt_ends_a_pipe():
    double = Double(["a", interrupt])
    with pytest.raises(KeyboardInterrupt):
        Chat(double, {}, None, False).run(lines("one", "two"))
    assert len(double.asked) == 1


def test_what_is_no_text_is_refused(monkeypatch, capsys):
    piped(monkeypatch, b"\xff\n")
    assert chat_command([], load()) == 1
    assert "no UTF-8" in capsys.readouterr().err


def test_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lines("one"))
    assert chat_command(["name", "--system", "s"], load(), is_terminal=True) == 0
    out, err = capsys.readouterr()
    assert out == "Hello\n\n"
    assert err.startswith("[name, in this process; /help")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--sing"], 2, "octavo chat: unknown flag --sing"),
        (["--port", "80"], 2, "unknown flag --port"),
        (["--temperature", "3"], 2, "--temperature must be from 0 to 2"),
        (["--api-key", "k"], 2, "--api-key is for a server"),
        (["--url", "localhost:80"], 2, "--url must be like"),
        (["--url", "http://[::1"], 2, "--url http://[::1: "),
        (["--url", "http://h", "--num-blocks", "1"], 2, "--num-blocks is for a model"),
        (["--backend", "gpu"], 1, "chat: fatal: --backend: unknown value"),
        (["--device", "cuda"], 1, "not built in this version"),
        (["absent-model"], 1, "chat: fatal: "),
    ],
)
def test_refusals(argv, code, words, capsys):
    assert chat_command(argv) == code
    out, err = capsys.readouterr()
    assert not out
    assert words in err


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_texts(word, capsys):
    assert chat_command([word]) == 0
    assert "octavo" in capsys.readouterr().out


def test_the_ranges_of_flags_are_those_of_requests():
    for member, flag in flags_of(AskOptions):
        if (bound := BOUNDS.get(member.name)) is None:
            continue
        assert member.name in SAMPLING
        for value in (bound.low - 2, bound.high + 1):
            if value < 10**18:
                with pytest.raises(ValueError):
                    flag.convert(f"{value:g}")


# ------------------------------------------------------------------------------ a real terminal

# The terminal becomes the process's own, so that Ctrl-C in it is SIGINT here.
CHILD = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from functools import partial
from pathlib import Path
from octavo.cli.chat import chat_command
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script
load = partial(load_scripted, script=Script.read(Path(sys.argv[1])))
sys.exit(chat_command(sys.argv[2:], load))
"""
ENDLESS = {
    "replies": [
        {"pieces": ["tick "], "end": False, "when": "go on"},
        {"pieces": ["the ", "end"], "when": "stop"},
    ],
    # The last question alone, so that what was said before finds no other reply.
    "chat_template": "{{ messages[-1]['content'] }}",
    "step_delay_ms": 1,
    "max_model_len": 100000,
}


class Terminal:
    """A process in a terminal."""

    def __init__(self, *argv):
        self._ours, theirs = pty.openpty()
        self._seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | {"TERM": "dumb"},
        )
        os.close(theirs)

    def type(self, keys):
        os.write(self._ours, keys.encode())

    def until(self, words):
        """Read until these words were shown; what came before them."""
        while words not in self._seen:
            try:
                data = os.read(self._ours, 4096)
            except OSError:  # how Linux says that the other side is closed
                data = b""
            assert data, f"ended without {words!r}: {self._seen[-2000:]}"
            self._seen += data.decode("utf-8", "replace")
        before, _, self._seen = self._seen.partition(words)
        return before

    def press_until(self, keys, words):
        """Type the keys again each second until something is shown.

        CPython misses a signal that comes after readline has shown its prompt and before it waits
        for keys; a person would press again too.
        """
        self.type(keys)
        while not self._seen and not select.select([self._ours], [], [], 1.0)[0]:
            self.type(keys)
        self.until(words)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture(params=["model", "server"])
def terminal(request, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(ENDLESS))
    if request.param == "model":
        terminal = Terminal(str(script))
        yield terminal
        terminal.close()
        return
    double = (sys.executable, "-m", "octavo.testing.scripted")
    with running_server("--script", str(script), "--api-key", "k", command=double) as server:
        terminal = Terminal(str(script), "--url", server.url, "--api-key", "k")
        yield terminal
        terminal.close()


def test_ctrl_c_stops_the_answer_and_ctrl_d_the_program(terminal):
    terminal.until("Ctrl-D ends]")
    terminal.until("> ")
    terminal.type("go on\n")
    terminal.until("tick tick ")
    terminal.type("\x03")
    terminal.until("[stopped]")
    terminal.until("> ")
    terminal.type("now stop\n")
    terminal.until("the end")
    terminal.until("> ")
    terminal.press_until("\x03", "> ")
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0
