"""`octavo models info`: what a model's files say, without loading it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.cli.report import exit_code_of
from octavo.cli.terminal import escaped_lines
from octavo.config import parse_values, usage
from octavo.config.fields import option, switch, text
from octavo.errors import ModelFileError, UsageError

PROG = "octavo models info"
ARGUMENTS = "MODEL [flags]"


@dataclass(frozen=True)
class InfoOptions:
    """Info"""

    model: str | None = option(
        None,
        "--model",
        doc="As for octavo serve, but nothing is fetched. The same as the argument MODEL.",
        convert=text,
        default_text="none: it must be given",
    )
    tensors: bool = switch(False, "--tensors", doc="List each tensor: name, shape, type, bytes.")
    template: bool = switch(False, "--template", doc="Print the chat template alone, whole.")
    json: bool = switch(False, "--json", doc="Print a JSON object.")


def info_command(argv: Sequence[str]) -> int:
    """Parse the flags, describe, and return the exit code."""
    return exit_code_of(lambda: _info(argv), PROG, usage(PROG, ARGUMENTS), who="models")


def _info(argv: Sequence[str]) -> int:
    _, options = parse_values(
        (),
        InfoOptions,
        argv,
        prog=PROG,
        description="Describe MODEL: architecture, sizes, types of its weights, vocabulary, chat "
        "template, memory needed.",
        arguments=ARGUMENTS,
    )
    if options.model is None:
        raise UsageError("a MODEL is needed")
    if options.template and (options.json or options.tensors):
        raise UsageError("--template prints the template alone: leave --json and --tensors out")
    from octavo.cli.models.info_report import as_json, as_text
    from octavo.serving.describe import describe_model
    from octavo.weights.resolve import find_model

    found = describe_model(find_model(options.model))
    if options.template:
        if found.template is None:
            raise ModelFileError(f"{options.model} has no chat template")
        _print_template(found.template)
    elif options.json:
        print(as_json(options.model, found, options.tensors))
    else:
        print(as_text(options.model, found, options.tensors), end="")
    return 0


def _print_template(template: str) -> None:
    """As it is; on a terminal its control characters are spelled."""
    if sys.stdout.isatty():
        print(escaped_lines(template))
    else:
        sys.stdout.write(template)
