"""The command `octavo`: finds the subcommand and hands it the rest of the line."""

import io
import sys
from collections.abc import Sequence

from octavo.cli.commands import Command, run_command

COMMANDS = {
    "serve": Command("Serve a model over the OpenAI API.", "octavo.cli.serve:serve_command"),
    "chat": Command("Chat with a model in the terminal.", "octavo.cli.chat:chat_command"),
    "complete": Command("Complete one prompt.", "octavo.cli.complete:complete_command"),
    "models": Command(
        "List, fetch, describe and remove models.", "octavo.cli.models.command:models_command"
    ),
    "tokenize": Command("Show the tokens of a text.", "octavo.cli.tokenize:tokenize_command"),
    "bench": Command("Measure a model on this machine.", "octavo.cli.bench.command:bench_command"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (without the program's name) and return the exit code.

    argv: None: this process's own.
    """
    if argv is None and isinstance(sys.stdout, io.TextIOWrapper):
        # What the locale cannot write is spelled, as Python does on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    return run_command("octavo", COMMANDS, sys.argv[1:] if argv is None else list(argv))
