"""`octavo models rm`: removes a fetched model from the caches."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from octavo.cli.report import exit_code_of
from octavo.cli.terminal import escaped, size_in_words
from octavo.config import parse_values, usage
from octavo.config.fields import option, switch, text
from octavo.errors import UsageError

PROG = "octavo models rm"
ARGUMENTS = "MODEL [flags]"


@dataclass(frozen=True)
class RmOptions:
    """Remove"""

    model: str | None = option(
        None,
        "--model",
        doc="A name that octavo models list shows, or org/name for all that is kept of a hub "
        "repository. The same as the argument MODEL.",
        convert=text,
        default_text="none: it must be given",
    )
    yes: bool = switch(False, "--yes", "-y", doc="Do not ask.")


def rm_command(argv: Sequence[str], *, is_terminal: bool | None = None) -> int:
    """Parse the flags, ask, remove, and return the exit code.

    is_terminal: None: is stdin one?
    """
    if is_terminal is None:
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
    return exit_code_of(
        partial(_remove, argv, is_terminal), PROG, usage(PROG, ARGUMENTS), who="models"
    )


def _remove(argv: Sequence[str], is_terminal: bool) -> int:
    _, options = parse_values(
        (),
        RmOptions,
        argv,
        prog=PROG,
        description="Remove MODEL from the cache folders. Your own folders and files are never "
        "touched.",
        arguments=ARGUMENTS,
    )
    if options.model is None:
        raise UsageError("a MODEL is needed")
    from octavo.weights.removal import plan_removal

    plan = plan_removal(options.model)
    if not options.yes and not _is_wanted(plan.name, plan.size_bytes, is_terminal):
        print("nothing is removed")
        return 1
    print(f"removed {plan.name}; {size_in_words(plan.execute())} are free again")
    return 0


def _is_wanted(name: str, size_bytes: int, is_terminal: bool) -> bool:
    if not is_terminal:
        raise UsageError("there is no terminal to ask on: give --yes")
    question = f"remove {escaped(name)} ({size_in_words(size_bytes)})? [y/N] "
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False
