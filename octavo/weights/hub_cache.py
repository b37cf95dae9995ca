"""The hub's cache folder on this machine: models that are whole there, found without the network.

Layout, as huggingface_hub documents it: `models--ORG--NAME/` holds `refs/main` (the commit that it
stands for), `blobs/` (contents by hash) and `snapshots/COMMIT/` (names, links into `blobs`).
"""

import os
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.weights.hub_files import (
    TOKENIZER_NAMES,
    TOKENIZER_SUFFIX,
    Choice,
    HubId,
    SeveralModels,
    choose_files,
    shard_names,
)
from octavo.weights.mapped import read_json
from octavo.weights.safetensors import INDEX_NAME

_PREFIX = "models--"


def hub_cache_folder() -> Path:
    """Where HF_HUB_CACHE, HF_HOME or the library's default put it."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser().absolute()


def repo_folder(repo: str, cache: Path) -> Path:
    """The folder of the repository `org/name`, which need not be there."""
    return cache / (_PREFIX + repo.replace("/", "--"))


def cached_repos(cache: Path) -> Iterator[tuple[str, Path]]:
    """(`org/name`, its folder) of each model repository in the cache, by name."""
    try:
        names = sorted(os.listdir(cache))
    except OSError:
        return
    for name in names:
        if name.startswith(_PREFIX) and (cache / name).is_dir():
            yield name.removeprefix(_PREFIX).replace("--", "/", 1), cache / name


def cached_model(hub_id: HubId, cache: Path, *, is_last: bool = False) -> Path | None:
    """The folder or GGUF file of a model that is whole in the cache.

    The snapshot that `main` points to counts first, then the youngest. is_last: the hub will not be
    asked: raises SeveralModels if the id means several files of the cache, and none before.
    """
    several: SeveralModels | None = None
    for snapshot in snapshots(repo_folder(hub_id.repo, cache)):
        try:
            choice = choose_files(file_names(snapshot), hub_id.tag)
            if is_whole(snapshot, choice):
                return snapshot / choice.gguf if choice.gguf else snapshot
        except SeveralModels as error:
            several = several or error
        except ModelFileError:
            continue  # not the model that is asked for, or a part of it
    if is_last and several is not None:
        raise SeveralModels(f"{hub_id}: of what is on this machine, {several}")
    return None


def is_whole(snapshot: Path, choice: Choice) -> bool:
    """Whether the files of a choice are all there, those of its index and of a vocabulary too."""
    names = list(choice.files)
    if choice.is_sharded:
        if not (snapshot / INDEX_NAME).is_file():
            return False
        names += shard_names(read_json(snapshot / INDEX_NAME))
    if choice.gguf is None and not any(
        name in TOKENIZER_NAMES or name.endswith(TOKENIZER_SUFFIX) for name in names
    ):
        return False
    return all((snapshot / name).is_file() for name in names)


def file_names(snapshot: Path) -> Iterator[str]:
    """Names of the files below a snapshot, as the repository has them; broken links are left out.

    No file is opened.
    """
    for folder, _, names in os.walk(snapshot):
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                yield path.relative_to(snapshot).as_posix()


def snapshots(repo: Path) -> list[Path]:
    """The snapshots of a repository, best first."""
    try:
        found = [path for path in (repo / "snapshots").iterdir() if path.is_dir()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    try:
        main = (repo / "refs" / "main").read_text("ascii").strip()
    except (OSError, ValueError):
        main = ""
    return sorted(found, key=lambda path: path.name != main)  # stable
