"""Takes a model out of the caches again; what other models need of it stays."""

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.weights.hub_cache import file_names, hub_cache_folder, repo_folder, snapshots
from octavo.weights.hub_files import HubId, choose_files, parse_hub_id
from octavo.weights.kept import kept_models
from octavo.weights.mapped import shown
from octavo.weights.quickstart import SMOLLM2, forget, kept_path

_SHOWN = 20  # names in one message


@dataclass(frozen=True, slots=True)
class Removal:
    """What removing a model would take away.

    files: its names, in all snapshots of the hub's cache. folder: of the hub's repository; None:
    the quick-start model. is_whole: the repository goes with all that is in it.
    """

    name: str
    files: tuple[Path, ...]
    folder: Path | None = None
    is_whole: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of the files, contents with several names counted once."""
        sizes = {os.path.realpath(path): path.stat().st_size for path in self.files}
        return sum(sizes.values())

    def execute(self) -> int:
        """Remove it; the bytes that became free. Raises ModelFileError."""
        try:
            if self.folder is None:
                freed = self.size_bytes
                forget(SMOLLM2, os.environ)
            elif self.is_whole:
                freed = _size_below(self.folder)
                shutil.rmtree(self.folder)
            else:
                freed = _remove_names(self.folder, self.files)
            if self.folder is not None and not self.folder.exists():
                locks = self.folder.parent / ".locks" / self.folder.name
                shutil.rmtree(locks, ignore_errors=True)
            return freed
        except OSError as error:
            raise ModelFileError(f"{self.name} cannot be removed: {error.strerror}") from None


def plan_removal(name: str) -> Removal:
    """What removing `name` (as `kept_models` has it, or a repository with all it holds) would do.

    Raises ModelFileError for a name that is not in the caches, and for one that is there by links
    to folders elsewhere: what lies outside the cache is never touched.
    """
    if name == SMOLLM2.name and (path := kept_path(SMOLLM2, os.environ)) is not None:
        return Removal(name, (path,))
    if (hub_id := parse_hub_id(name)) is not None:
        folder = repo_folder(hub_id.repo, hub_cache_folder())
        _refuse_links(name, folder)
        files = tuple(_files_of(hub_id, folder))
        if files or (hub_id.tag is None and folder.is_dir()):
            return Removal(name, files, folder, is_whole=hub_id.tag is None)
    for model in kept_models():
        if name == model.name == str(model.path):
            folder = _repository(model.path)
            _refuse_links(name, folder)
            return Removal(name, model.files, folder)
    raise ModelFileError(_unknown(name))


# -------------------------------------------------------------------------------------- inside


def _repository(path: Path) -> Path:
    """The hub's folder that a path in one of its snapshots lies in."""
    return next(parent.parent for parent in path.parents if parent.name == "snapshots")


def _refuse_links(name: str, folder: Path) -> None:
    inner = folder / "snapshots"
    for path in (folder, folder / "blobs", inner, *snapshots(folder)):
        if path.is_symlink():
            raise ModelFileError(
                f"{name} is not removed: {shown(str(path), 400)} is a link to another folder, "
                "which is not followed; remove the link and what it leads to yourself"
            )


def _files_of(hub_id: HubId, folder: Path) -> Iterator[Path]:
    """In all snapshots: every file, or those of the GGUF model that the tag means."""
    for snapshot in snapshots(folder):
        names = list(file_names(snapshot))
        if hub_id.tag is not None:
            try:
                names = list(choose_files(names, hub_id.tag).files)
            except ModelFileError:
                continue
        yield from (snapshot / name for name in names)


def _remove_names(folder: Path, files: Sequence[Path]) -> int:
    """Remove the names, then the blobs that no name leads to any more; the bytes of those.

    Not by huggingface_hub: it leaves a repository out in which anything is amiss (a dead link, a
    stray file), and what else is in there must stay all the same.
    """
    blobs, freed = set(), 0
    for path in files:
        if path.is_symlink():
            blobs.add(_target(path))
        else:  # a file system without links: the name is the contents
            freed += _size(path)
        path.unlink()
    for blob in blobs - set(_targets(folder)):
        if blob.parent == Path(os.path.realpath(folder / "blobs")):
            freed += _size(blob)
            blob.unlink(missing_ok=True)
    _tidy(folder, files)
    return freed


def _target(link: Path) -> Path:
    """Where the link leads, one step: a blob may be a link itself, into a store of several."""
    parent = os.path.realpath(link.parent)
    path = Path(os.path.normpath(os.path.join(parent, os.readlink(link))))
    return Path(os.path.realpath(path.parent), path.name)


def _targets(folder: Path) -> Iterator[Path]:
    """What the names of all snapshots lead to."""
    for parent, _, names in os.walk(folder / "snapshots"):
        yield from (_target(p) for p in (Path(parent, name) for name in names) if p.is_symlink())


def _size(path: Path) -> int:
    """Bytes that are free when this name is gone: none of a link, nor of contents named twice."""
    found = path.lstat() if path.is_symlink() or path.exists() else None
    return found.st_size if found and stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else 0


def _size_below(folder: Path) -> int:
    return sum(_size(Path(parent, n)) for parent, _, names in os.walk(folder) for n in names)


def _tidy(folder: Path, files: Sequence[Path]) -> None:
    """Remove folders that are empty now, and refs to snapshots that went with them."""
    inner = folder / "snapshots"
    for path in files:
        for parent in path.parents:
            if parent == inner or not _is_removed(parent):
                break
    commits = {path.relative_to(inner).parts[0] for path in files}
    gone = {commit for commit in commits if not (inner / commit).exists()}
    for below, _, names in os.walk(folder / "refs", topdown=False):
        for ref in (Path(below, name) for name in names):
            if ref.is_file() and ref.read_bytes().strip().decode("ascii", "replace") in gone:
                ref.unlink()
        _is_removed(Path(below))
    for path in (inner, folder / "blobs", folder):
        _is_removed(path)


def _is_removed(folder: Path) -> bool:
    """Remove an empty folder; whether it is gone."""
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


def _unknown(name: str) -> str:
    if Path(name).expanduser().exists():
        return f"{shown(name)} is not in a cache of Octavo: only what was fetched is removed"
    known = [model.name for model in kept_models()]
    listed = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    return f"{shown(name)} is not kept here; " + (f"kept are {listed}" if known else "nothing is")
