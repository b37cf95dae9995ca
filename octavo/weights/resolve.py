"""From the model argument of a command to a folder or a .gguf file on this machine."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ModelFileError
from octavo.weights.quickstart import SMOLLM2, kept_path, smollm2_path

if TYPE_CHECKING:
    from octavo.weights.hub_fetch import Check
    from octavo.weights.hub_files import HubId


def resolve_model(argument: str, *, progress: bool = True, check: "Check | None" = None) -> Path:
    """The model's folder or .gguf file; what is not on this machine is fetched at its first use.

    argument: the quick-start name, a path, or a hub id (`org/name`, `org/name:Q4_K_M`); a path that
    is there counts before a hub id. check: of a hub model that is fetched, is given its config.json
    before the weights are, and may raise ConfigError. Raises ModelFileError when there is no such
    model.
    """
    if argument == SMOLLM2.name:  # a folder of this name is reached as ./smollm2
        return smollm2_path(progress)
    if (path := _given_path(argument)) is not None:
        return path
    from octavo.weights.hub import hub_path

    return hub_path(_hub_id(argument), progress=progress, check=check)


def find_model(argument: str) -> Path:
    """As `resolve_model`, but nothing is fetched: raises ModelFileError for what is not here."""
    if argument == SMOLLM2.name:
        path = kept_path(SMOLLM2, os.environ)
    elif (path := _given_path(argument)) is None:
        from octavo.weights.hub_cache import cached_model, hub_cache_folder

        path = cached_model(_hub_id(argument), hub_cache_folder(), is_last=True)
    if path is None:
        raise ModelFileError(
            f"{argument} is not on this machine; octavo models pull {argument} fetches it"
        )
    return path


def _given_path(argument: str) -> Path | None:
    """The folder or file that the argument names; None: there is none."""
    path = Path(argument).expanduser()
    if path.is_dir():
        return path
    if not path.is_file():
        return None
    if path.suffix.lower() != ".gguf":
        raise ModelFileError(f"{argument} is neither a model folder nor a .gguf file")
    return path


def _hub_id(argument: str) -> "HubId":
    from octavo.weights.hub_files import parse_hub_id

    hub_id = parse_hub_id(argument)
    if hub_id is None:
        raise ModelFileError(
            f"no model at {argument}: name a model folder, a .gguf file, a hub id such as org/name "
            f"or org/name:Q4_K_M, or {SMOLLM2.name}"
        )
    return hub_id
