"""`octavo chat`: a conversation in the terminal; through pipes, a question a line."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.cli.ask import MODEL_GROUPS, AskOptions, Source, open_source, sampling_of, tell
from octavo.cli.report import exit_code_of, one_line
from octavo.config import parse_values, usage
from octavo.config.fields import option, text
from octavo.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from octavo.cli.ask import Load

PROG = "octavo chat"
BLOCK = '"""'
HELP = f"""\
/clear          forget the conversation
/system TEXT    forget the conversation and give the model these instructions (no TEXT: none)
/help           this list
/exit           end; so does Ctrl-D
A line that ends with \\ goes on in the next one; {BLOCK} alone begins and ends many lines.
Ctrl-C stops an answer."""

ReadLine = Callable[[str], str]  # takes the prompt; raises EOFError at the end


@dataclass(frozen=True)
class ChatOptions(AskOptions):
    """Chat"""

    system: str | None = option(
        None,
        "--system",
        doc="Instructions that the conversation begins with.",
        convert=text,
        metavar="TEXT",
        default_text="none",
    )


def chat_command(
    argv: Sequence[str], load: "Load | None" = None, *, is_terminal: bool | None = None
) -> int:
    """Parse the flags, chat until the end, and return the exit code.

    load: for doubles. is_terminal: None: are stdin and stdout both one?
    """
    if is_terminal is None:
        is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()

    def work() -> int:
        values, options = parse_values(
            MODEL_GROUPS,
            ChatOptions,
            argv,
            prog=PROG,
            description="Chat with MODEL; without a terminal, each line of standard input is a "
            "question.",
        )
        with open_source(values, options, load) as source:
            chat = Chat(source, sampling_of(options), options.system, is_terminal)
            return chat.run(_terminal_line() if is_terminal else _piped_line)

    return exit_code_of(work, PROG, usage(PROG), who="chat", has_verbose=True)


def read_text(read_line: ReadLine) -> str:
    """The next question or command, of one line or more. Raises EOFError when there is none."""
    lines = [read_line("> ")]
    with suppress(EOFError):  # what was typed before the end is not lost
        if lines[0].strip() == BLOCK:
            lines.clear()
            while (line := read_line(". ")).strip() != BLOCK:
                lines.append(line)
            return "\n".join(lines)
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(read_line(". "))
    return "\n".join(lines)


class Chat:
    """The conversation so far, and the loop that goes on with it."""

    def __init__(
        self, source: Source, params: dict[str, Any], system: str | None, is_terminal: bool
    ) -> None:
        self._source = source
        self._params = params
        self._is_terminal = is_terminal
        self._messages: list[dict[str, str]] = []
        self._commands: dict[str, Callable[[str], bool]] = {
            "/help": self._help,
            "/clear": self._clear,
            "/system": self._begin,
            "/exit": lambda rest: False,
        }
        self._begin(system or "")

    def run(self, read_line: ReadLine) -> int:
        """Until the end; the exit code. On a terminal errors are shown, else they end it."""
        if self._is_terminal:
            _note(f"{self._source.name}, {self._source.where}; /help lists commands, Ctrl-D ends")
        while True:
            try:
                if not self._turn(read_text(read_line)):
                    return 0
            except EOFError:
                if self._is_terminal:
                    print()
                return 0
            except KeyboardInterrupt:
                if not self._is_terminal:
                    raise
                print()
            except OctavoError as error:
                if not self._is_terminal:
                    raise
                _note(f"error: {one_line(error)}")

    def _turn(self, given: str) -> bool:
        """Do what was asked; False: end."""
        word, _, rest = given.strip().partition(" ")
        if word in self._commands:
            return self._commands[word](rest.strip())
        if word.startswith("/") and word[1:].isalpha():
            _note(f"unknown command {word}; /help lists them")
        elif word:
            self._answer(given)
        return True

    def _answer(self, question: str) -> None:
        """Both go into the conversation, but a question without an answer does not."""
        messages = [*self._messages, {"role": "user", "content": question}]
        answer = self._source.chat(messages, self._params)
        try:
            told = tell(answer)
        finally:
            print(flush=True)
        if told.text:
            self._messages = [*messages, {"role": "assistant", "content": told.text}]
        if told.stopped and not self._is_terminal:
            raise KeyboardInterrupt
        if told.stopped:
            _note("stopped" if told.text else "stopped; the question is forgotten")
        elif told.finish_reason == "length":
            _note("the answer is cut: by --max-tokens, or by the model's length")

    # ------------------------------------------------------------------ commands

    def _help(self, _: str) -> bool:
        print(HELP)
        return True

    def _clear(self, _: str) -> bool:
        self._messages = [m for m in self._messages if m["role"] == "system"]
        return True

    def _begin(self, system: str) -> bool:
        self._messages = [{"role": "system", "content": system}] if system else []
        return True


def _note(words: str) -> None:
    """What is no part of an answer."""
    print(f"[{words}]", file=sys.stderr, flush=True)


def _terminal_line() -> ReadLine:
    with suppress(ImportError):  # some builds of Python lack it; lines then have no editing
        import readline  # noqa: F401 - importing it is what gives `input` editing and history
    return input


def _piped_line(_: str) -> str:
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input is no UTF-8: {error}") from None
    if not line:
        raise EOFError
    return line.removesuffix("\n")
