"""`octavo complete`: one prompt, its completion on stdout as it comes."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.cli.ask import MODEL_GROUPS, AskOptions, open_source, sampling_of, tell
from octavo.cli.report import exit_code_of
from octavo.cli.terminal import read_stdin
from octavo.config import parse_values, usage
from octavo.config.fields import integer, option, text
from octavo.errors import UsageError

if TYPE_CHECKING:
    from octavo.cli.ask import Load

PROG = "octavo complete"


@dataclass(frozen=True)
class CompleteOptions(AskOptions):
    """Completion"""

    prompt: str | None = option(
        None,
        "--prompt",
        doc="The text to go on with.",
        convert=text,
        metavar="TEXT",
        default_text="standard input without its last line break",
    )
    max_tokens: int | None = option(
        256, "--max-tokens", doc="Longest completion.", convert=integer(1), metavar="N"
    )


def complete_command(argv: Sequence[str], load: "Load | None" = None) -> int:
    """Parse the flags, complete, and return the exit code. load: for doubles."""
    return exit_code_of(
        lambda: _complete(argv, load), PROG, usage(PROG), who="complete", has_verbose=True
    )


def _complete(argv: Sequence[str], load: "Load | None") -> int:
    values, options = parse_values(
        MODEL_GROUPS,
        CompleteOptions,
        argv,
        prog=PROG,
        description="Complete a prompt with MODEL; the completion goes to standard output.",
    )
    prompt = _read_prompt() if options.prompt is None else options.prompt
    with open_source(values, options, load) as source:
        told = tell(source.complete(prompt, sampling_of(options)))
    if sys.stdout.isatty() and not told.text.endswith("\n"):
        print()
    return 130 if told.stopped else 0


def _read_prompt() -> str:
    prompt = read_stdin(
        "the prompt", "a prompt is needed: --prompt TEXT, or a text on standard input"
    )
    if not prompt:
        raise UsageError("the prompt on standard input is empty")
    return prompt
