"""Commands that have commands: the first word names one, and the rest of the line is its own."""

from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import NamedTuple

from octavo import __version__
from octavo.cli.report import exit_code_of
from octavo.config import Shown
from octavo.errors import UsageError


class Command(NamedTuple):
    """A command: one line for the help, and where the function is that runs it.

    entry_point: `module:function`, imported when the command is called. The function takes the rest
    of the line and returns the exit code.
    """

    summary: str
    entry_point: str

    def run(self, words: Sequence[str]) -> int:
        """Run it on the rest of the line; the exit code."""
        function: Callable[[Sequence[str]], int] = resolve_name(self.entry_point)
        return function(words)


def run_command(prog: str, commands: Mapping[str, Command], words: Sequence[str]) -> int:
    """Run the command that the first word names, and return the exit code.

    Without one: help and version on stdout and 0, else usage and reason on stderr and 2.
    """
    if words and words[0] in commands:
        return commands[words[0]].run(words[1:])
    return exit_code_of(lambda: _without_command(prog, commands, words), prog, _usage(prog))


def _usage(prog: str) -> str:
    return f"usage: {prog} COMMAND ..."


def _without_command(prog: str, commands: Mapping[str, Command], words: Sequence[str]) -> int:
    match words:
        case ["-h" | "--help", *_]:
            raise Shown(_help(prog, commands))
        case ["--version", *_]:
            raise Shown(f"octavo {__version__}\n")
        case []:
            raise UsageError(f"a command is needed: {', '.join(commands)}")
        case [word, *_]:
            raise UsageError(f"unknown command {word}; known: {', '.join(commands)}")
    raise AssertionError("the cases above are all there are")


def _help(prog: str, commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in commands.items()]
    return "\n".join(
        [
            _usage(prog),
            "",
            "commands:",
            *lines,
            "",
            f"{prog} COMMAND --help tells more; {prog} --version shows the version.",
            "",
        ]
    )
