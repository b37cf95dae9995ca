"""`python -m octavo.testing.scripted`: the flags of `octavo serve`, and `--script`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from octavo.cli.report import exit_code_of
from octavo.cli.serve import start
from octavo.config import parse_args_and, usage
from octavo.config.fields import option, text
from octavo.errors import UsageError

PROG = "python -m octavo.testing.scripted"


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """What the double has beside the serve flags."""

    script: str | None = option(
        None, "--script", doc="The script, a JSON file; required.", convert=text, metavar="FILE"
    )


def main(argv: Sequence[str]) -> int:
    """Serve the script until the end; the exit codes of `octavo serve`."""
    return exit_code_of(lambda: _serve(argv), PROG, usage(PROG))


def _serve(argv: Sequence[str]) -> int:
    config, own = parse_args_and(ScriptOptions, argv, prog=PROG, default_model="scripted")
    if own.script is None:
        raise UsageError("--script FILE is required")
    from octavo.testing.scripted.load import load_scripted
    from octavo.testing.scripted.script import Script

    script = Script.read(Path(own.script))
    return start(config, partial(load_scripted, script=script))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
