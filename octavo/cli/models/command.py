"""The command `octavo models`: one command for each thing that is done with models."""

from collections.abc import Sequence

from octavo.cli.commands import Command, run_command

COMMANDS = {
    "list": Command("List the models that are kept here.", "octavo.cli.models.list:list_command"),
    "pull": Command("Fetch a model.", "octavo.cli.models.pull:pull_command"),
    "rm": Command("Remove a fetched model.", "octavo.cli.models.rm:rm_command"),
    "info": Command("Describe a model without loading it.", "octavo.cli.models.info:info_command"),
}


def models_command(argv: Sequence[str]) -> int:
    """Run the command that the first word names, and return the exit code."""
    return run_command("octavo models", COMMANDS, argv)
