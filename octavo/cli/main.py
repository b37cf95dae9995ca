"""The command `octavo`: finds the subcommand and hands it the rest of the line."""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from octavo import __version__
from octavo.cli.chat import chat_command
from octavo.cli.complete import complete_command
from octavo.cli.report import exit_code_of
from octavo.cli.serve import serve_command
from octavo.config import Shown
from octavo.errors import UsageError

USAGE = "usage: octavo COMMAND ..."


class Command(NamedTuple):
    """A subcommand: one line for the help, and what runs it."""

    summary: str
    run: Callable[[Sequence[str]], int]


COMMANDS = {
    "serve": Command("Serve a model over the OpenAI API.", serve_command),
    "chat": Command("Chat with a model in the terminal.", chat_command),
    "complete": Command("Complete one prompt.", complete_command),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (without the program's name) and return the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]].run(words[1:])
    return exit_code_of(lambda: _without_command(words), "octavo", USAGE)


def _without_command(words: Sequence[str]) -> int:
    match words:
        case ["-h" | "--help", *_]:
            raise Shown(_help())
        case ["--version", *_]:
            raise Shown(f"octavo {__version__}\n")
        case []:
            raise UsageError(f"a command is needed: {', '.join(COMMANDS)}")
        case [word, *_]:
            raise UsageError(f"unknown command {word}; known: {', '.join(COMMANDS)}")
    raise AssertionError("the cases above are all there are")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            USAGE,
            "",
            "commands:",
            *lines,
            "",
            "octavo COMMAND --help tells more; octavo --version shows the version.",
            "",
        ]
    )
