"""From the model argument of a command to a folder or a .gguf file on this machine."""

from pathlib import Path

from octavo.errors import ModelFileError
from octavo.weights.quickstart import SMOLLM2, smollm2_path


def resolve_model(argument: str, *, progress: bool = True, newest: bool = False) -> Path:
    """The model's folder or .gguf file; what is not on this machine is fetched at its first use.

    argument: the quick-start name, a path, or a hub id (`org/name`, `org/name:Q4_K_M`); a path that
    is there counts before a hub id. newest: ask the hub for a newer version of a hub model. Raises
    ModelFileError when there is no such model.
    """
    if argument == SMOLLM2.name:  # a folder of this name is reached as ./smollm2
        return smollm2_path(progress)
    path = Path(argument).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelFileError(f"{argument} is neither a model folder nor a .gguf file")
        return path
    return _from_hub(argument, progress, newest)


def _from_hub(argument: str, progress: bool, newest: bool) -> Path:
    from octavo.weights.hub import hub_path
    from octavo.weights.hub_files import parse_hub_id

    hub_id = parse_hub_id(argument)
    if hub_id is None:
        raise ModelFileError(
            f"no model at {argument}: name a model folder, a .gguf file, a hub id such as org/name "
            f"or org/name:Q4_K_M, or {SMOLLM2.name}"
        )
    return hub_path(hub_id, progress=progress, newest=newest)
