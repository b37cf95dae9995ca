"""The command `octavo`: finds the subcommand and hands it the rest of the line."""

import sys
from collections.abc import Sequence

from octavo.cli.bench.command import bench_command
from octavo.cli.chat import chat_command
from octavo.cli.commands import Command, run_command
from octavo.cli.complete import complete_command
from octavo.cli.serve import serve_command

COMMANDS = {
    "serve": Command("Serve a model over the OpenAI API.", serve_command),
    "chat": Command("Chat with a model in the terminal.", chat_command),
    "complete": Command("Complete one prompt.", complete_command),
    "bench": Command("Measure a model on this machine.", bench_command),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (without the program's name) and return the exit code."""
    return run_command("octavo", COMMANDS, sys.argv[1:] if argv is None else list(argv))
