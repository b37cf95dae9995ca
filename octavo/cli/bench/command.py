"""The command `octavo bench`: one command for each kind of measurement."""

from collections.abc import Sequence

from octavo.cli.commands import Command, run_command

COMMANDS = {
    "profile": Command(
        "Time each operation of a model's steps.", "octavo.cli.bench.profile:profile_command"
    ),
}


def bench_command(argv: Sequence[str]) -> int:
    """Run the measurement that the first word names, and return the exit code."""
    return run_command("octavo bench", COMMANDS, argv)
