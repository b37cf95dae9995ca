"""Writes docs/flags.md from the option fields: `python -m octavo.cli.flags_doc > docs/flags.md`."""

import sys
from collections.abc import Iterator
from dataclasses import Field
from typing import Any

from octavo.cli.bench.profile import ProfileOptions
from octavo.cli.chat import ChatOptions
from octavo.cli.complete import CompleteOptions
from octavo.cli.models.info import InfoOptions
from octavo.cli.models.list import ListOptions
from octavo.cli.models.pull import PullOptions
from octavo.cli.models.rm import RmOptions
from octavo.cli.tokenize import TokenizeOptions
from octavo.config.config import GROUPS
from octavo.config.fields import Flag, default_in_words, flags_of
from octavo.config.names import REASONING_PARSERS, TOOL_PARSERS

_HEAD = """\
# Flags of `octavo serve`

Written by `python -m octavo.cli.flags_doc` from the fields in `octavo/config`; do not edit.

`octavo serve [MODEL] [flags]`. A flag takes its value as `--flag VALUE` or `--flag=VALUE`; the word
after such a flag is its value, whatever it looks like. Of a flag given twice the last value counts,
except where a note says otherwise. Names cannot be abbreviated.

Exit codes: 0 after help, version or a normal end; 2 with usage when the command line itself is
wrong; 1 with one line `server: fatal: <reason>` for everything else. All flags are checked before
any model is read.
"""

_ASKING = """\
# Flags of `octavo chat` and `octavo complete`

`octavo chat [MODEL] [flags]`, `octavo complete [MODEL] [flags]`. Both take the flags above of the
sections Model and KV cache, unless they ask a server. Exit codes as above, with `chat: fatal:` or
`complete: fatal:`; 130 when Ctrl-C ended it.
"""

_BENCH = """\
# Flags of `octavo bench profile`

`octavo bench profile [MODEL] [flags]`. Exit codes as above, with `bench: fatal:`.
"""

_MODELS = """\
# Flags of `octavo models`

`octavo models list [flags]`, `octavo models pull MODEL [flags]`, `octavo models rm MODEL [flags]`,
`octavo models info MODEL [flags]`. Exit codes as above, with `models: fatal:`; 1 also when rm asks
and the answer is no.
"""

_TOKENIZE = """\
# Flags of `octavo tokenize`

`octavo tokenize MODEL [TEXT] [flags]`. Exit codes as above, with `tokenize: fatal:`.
"""


def flags_document() -> str:
    """The text of docs/flags.md."""
    lines = [_HEAD]
    for group in GROUPS.values():
        lines += _section(group)
    lines += ["## Environment variables", "", "| variable | default | |", "|---|---|---|"]
    lines += [*_environment_rows(), ""]
    lines += ["## Parser names", ""]
    lines += ["Names that this version knows but has not built are refused by name.", ""]
    lines += [f"`--tool-call-parser`: auto, none, {', '.join(TOOL_PARSERS)}.", ""]
    lines += [f"`--reasoning-parser`: auto, none, {', '.join(REASONING_PARSERS)}.", ""]
    lines += [_ASKING]
    lines += _section(ChatOptions) + _section(CompleteOptions)
    lines += [_MODELS]
    lines += _section(ListOptions) + _section(PullOptions)
    lines += _section(RmOptions) + _section(InfoOptions)
    lines += [_TOKENIZE, *_section(TokenizeOptions)]
    lines += [_BENCH, *_section(ProfileOptions)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(group: Any) -> list[str]:
    rows = [_flag_row(member, flag) for member, flag in flags_of(group) if flag.names]
    return [f"## {group.__doc__}", "", "| flag | default | |", "|---|---|---|", *rows, ""]


def _flag_row(member: Field[Any], flag: Flag) -> str:
    value = "" if flag.convert is None else f" {flag.metavar}"
    names = ", ".join(f"`{name}{value}`" for name in (*flag.names, *flag.off_names))
    words = [flag.doc]
    if flag.allowed:
        words.append(f"One of {', '.join(flag.allowed)}.")
    if flag.family:
        words.append("Only one of these flags, once.")
    return _row(names, default_in_words(member, flag), " ".join(words))


def _environment_rows() -> Iterator[str]:
    for group in GROUPS.values():
        for member, flag in flags_of(group):
            if not flag.env:
                continue
            words = flag.doc
            if flag.names:
                order = "it wins over the flag" if flag.env_wins else "the flag wins over it"
                words = f"As `{flag.names[0]}`; {order}. 1, true, TRUE and on mean on."
            yield _row(f"`{flag.env}`", default_in_words(member, flag), words)
    yield _row(
        "`OCTAVO_CACHE`",
        "`octavo` in `$XDG_CACHE_HOME` or `~/.cache`",
        "Folder of the quick-start model.",
    )
    yield _row(
        "`HF_HOME`, `HF_HUB_CACHE`",
        "`~/.cache/huggingface`, `hub` in it",
        "Folder of what is fetched from the hub, shared with other programs.",
    )
    yield _row("`HF_TOKEN`", "unset", "Token for gated and private models of the hub.")
    yield _row("`HF_ENDPOINT`", "`https://huggingface.co`", "Address of the hub, or of a mirror.")
    yield _row("`HF_HUB_OFFLINE`", "off", "1: the hub is never asked; what is cached is used.")
    yield _row(
        "`OCTAVO_ISA`",
        "auto",
        "Form of the native kernels: scalar, avx2, or auto, the fastest that the CPU executes.",
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(flags_document())
