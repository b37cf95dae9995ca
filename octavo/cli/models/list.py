"""`octavo models list`: what is in the caches, by the names that `octavo serve` takes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from octavo.cli.report import exit_code_of
from octavo.cli.terminal import escaped, size_in_words, table
from octavo.config import parse_values, usage
from octavo.config.fields import switch

if TYPE_CHECKING:
    from octavo.weights.kept import KeptModel

PROG = "octavo models list"
ARGUMENTS = "[flags]"


@dataclass(frozen=True)
class ListOptions:
    """List"""

    json: bool = switch(False, "--json", doc="Print a JSON list.")


def list_command(argv: Sequence[str]) -> int:
    """Parse the flags, print, and return the exit code."""
    return exit_code_of(lambda: _list(argv), PROG, usage(PROG, ARGUMENTS), who="models")


def _list(argv: Sequence[str]) -> int:
    _, options = parse_values(
        (),
        ListOptions,
        argv,
        prog=PROG,
        description="List the models in the cache folders of Octavo and of the hub.",
        arguments=ARGUMENTS,
        positional=(),
    )
    from octavo.models.registry import architecture_names
    from octavo.weights.kept import kept_models

    served = architecture_names()
    models = kept_models()
    if options.json:
        print(json.dumps([_values(model, model.architecture in served) for model in models]))
    elif models:
        print(_as_table(models, served), end="")
    else:
        print("no models are kept here; octavo models pull MODEL fetches one")
    return 0


def _values(model: "KeptModel", is_served: bool) -> dict[str, Any]:
    return {
        "name": model.name,
        "format": model.format,
        "quantization": model.quant or None,
        "architecture": model.architecture,
        "servable": is_served,
        "size_bytes": model.size_bytes,
        "last_used": int(model.used_s),
        "path": str(model.path),
    }


def _as_table(models: Sequence["KeptModel"], served: frozenset[str]) -> str:
    rows = [("name", "format", "size", "last used", "")]
    for model in models:
        note = ""
        if model.architecture not in served:
            name = escaped(model.architecture or "of no known kind", 60)
            note = f"cannot be served: {name}"
        day = datetime.fromtimestamp(model.used_s).strftime("%Y-%m-%d %H:%M")
        form = f"{model.format} {model.quant}".rstrip()
        rows.append(
            (escaped(model.name), escaped(form), size_in_words(model.size_bytes), day, note)
        )
    return table(rows, right=(2,))
