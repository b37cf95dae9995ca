"""`octavo models pull`: fetches a model, or a newer version of it, and prints where it is."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.cli.report import exit_code_of
from octavo.config import parse_values, usage
from octavo.config.fields import option, switch, text
from octavo.errors import UsageError

PROG = "octavo models pull"
ARGUMENTS = "MODEL [flags]"


@dataclass(frozen=True)
class PullOptions:
    """Pull"""

    model: str | None = option(
        None,
        "--model",
        doc="A hub id as org/name or org/name:Q4_K_M, or smollm2. The same as the argument MODEL.",
        convert=text,
        default_text="none: it must be given",
    )
    quiet: bool = switch(False, "--quiet", "-q", doc="Show no progress.")


def pull_command(argv: Sequence[str]) -> int:
    """Parse the flags, fetch, print the path, and return the exit code."""
    return exit_code_of(lambda: _pull(argv), PROG, usage(PROG, ARGUMENTS), who="models")


def _pull(argv: Sequence[str]) -> int:
    _, options = parse_values(
        (),
        PullOptions,
        argv,
        prog=PROG,
        description="Fetch MODEL, or what is newer of it than the cache; print where it is.",
        arguments=ARGUMENTS,
    )
    if options.model is None:
        raise UsageError("a MODEL is needed")
    from octavo.log import setup_logging

    setup_logging()
    path = _fetch(options.model, not options.quiet)
    if path.is_file():
        _warn_of(options.model, path)
    print(path)
    return 0


def _warn_of(model: str, path: Path) -> None:
    """A GGUF file tells what it is when it is here; of a folder its configuration told before."""
    from octavo.models.registry import architecture_names
    from octavo.weights.gguf import gguf_architecture
    from octavo.weights.mapped import shown_value

    architecture = gguf_architecture(path)
    if architecture is None:
        why = "the file names no architecture"
    elif architecture not in architecture_names():
        why = f"the architecture {shown_value(architecture)} is not known"
    else:
        return
    print(f"models: warning: {model} cannot be served: {why}", file=sys.stderr)


def _fetch(model: str, progress: bool) -> Path:
    from octavo.models.registry import check_config
    from octavo.weights.hub import hub_path
    from octavo.weights.hub_files import parse_hub_id
    from octavo.weights.quickstart import SMOLLM2, smollm2_path

    if model == SMOLLM2.name:
        return smollm2_path(progress)
    hub_id = parse_hub_id(model)
    if hub_id is None:
        raise UsageError(f"{model!r} is neither a hub id, as org/name, nor {SMOLLM2.name}")
    return hub_path(hub_id, progress=progress, newest=True, check=check_config)
