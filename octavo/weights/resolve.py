"""From the model argument of a command to a folder or a .gguf file on this machine."""

import re
from pathlib import Path

from octavo.errors import ModelFileError, NotBuilt
from octavo.weights.quickstart import SMOLLM2, smollm2_path

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?", re.ASCII)


def resolve_model(argument: str, *, progress: bool = True) -> Path:
    """The model's folder or .gguf file; the quick-start model is fetched at its first use.

    Raises ModelFileError when there is no such model, NotBuilt for hub ids.
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
    if _HUB_ID.fullmatch(argument) and not argument.lower().endswith(".gguf"):
        raise NotBuilt(
            f"{argument} is no folder here, and fetching hub ids is not built in this version of "
            "Octavo: download the model and name its folder or .gguf file"
        )
    raise ModelFileError(
        f"no model at {argument}: name a model folder, a .gguf file or {SMOLLM2.name}"
    )
