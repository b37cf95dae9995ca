"""The models kept on this machine: in Octavo's cache folder (the quick start) and in the hub's."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from octavo.errors import ModelFileError
from octavo.weights.checkpoint import read_config
from octavo.weights.gguf import gguf_architecture
from octavo.weights.hub_cache import (
    cached_repos,
    file_names,
    hub_cache_folder,
    is_whole,
    snapshots,
)
from octavo.weights.hub_files import choose_files, gguf_models, parse_hub_id, quant_in
from octavo.weights.quickstart import SMOLLM2, kept_path


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A model that is whole in a cache.

    name: as `octavo serve` takes it: the path where no hub id means this model. architecture: by
    its file; None: the file does not tell. quant: the quantisation or type in the name of a GGUF
    file; "" for others. files: as opened.
    """

    name: str
    format: Literal["gguf", "safetensors"]
    architecture: str | None
    quant: str
    path: Path
    files: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def used_s(self) -> float:
        """Unix seconds of the last reading or writing, as far as the file system notes them."""
        return max(max(s.st_atime, s.st_mtime) for s in map(os.stat, self.files))


def kept_models() -> list[KeptModel]:
    """All of them, by name. No weights are opened."""
    found = [*_quick(), *_of_hub()]
    return sorted(found, key=lambda model: model.name.lower())


# -------------------------------------------------------------------------------------- inside


def _quick() -> Iterator[KeptModel]:
    path = kept_path(SMOLLM2, os.environ)
    if path is not None:
        quant = quant_in(path.stem)
        yield KeptModel(SMOLLM2.name, "gguf", gguf_architecture(path), quant, path, (path,))


def _of_hub() -> Iterator[KeptModel]:
    for repo, folder in cached_repos(hub_cache_folder()):
        seen: set[str] = set()
        for snapshot in snapshots(folder):
            for model in _of_snapshot(repo, snapshot):
                if model.name not in seen:  # older versions of it are not what is served
                    seen.add(model.name)
                    yield model


def _of_snapshot(repo: str, snapshot: Path) -> Iterator[KeptModel]:
    names = list(file_names(snapshot))
    try:
        choice = choose_files(names, None)
        if choice.gguf is None and is_whole(snapshot, choice):
            architecture = _folder_architecture(snapshot)
            files = tuple(path for path in snapshot.iterdir() if path.is_file())
            name = repo if parse_hub_id(repo) is not None else str(snapshot)
            yield KeptModel(name, "safetensors", architecture, "", snapshot, files)
    except ModelFileError:
        pass  # no folder that is read; there may be GGUF files
    for model in gguf_models(names):
        if not model.is_whole:
            continue
        paths = tuple(snapshot / part for part in model.parts)
        tags = (model.quant, model.stem)
        name = _name_of(repo, names, model.parts[0], tags) or str(paths[0])
        architecture = gguf_architecture(paths[0])
        yield KeptModel(name, "gguf", architecture, model.quant, paths[0], paths)


def _name_of(repo: str, names: list[str], first: str, tags: tuple[str, ...]) -> str | None:
    """The shortest hub id that means this file; None: there is none."""
    for tag in tags:
        hub_id = parse_hub_id(f"{repo}:{tag}")
        try:
            if hub_id is not None and choose_files(names, hub_id.tag).gguf == first:
                return str(hub_id)
        except ModelFileError:
            continue
    return None


def _folder_architecture(folder: Path) -> str | None:
    try:
        found = read_config(folder).get("architectures")
    except ModelFileError:
        return None
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, str) else None
