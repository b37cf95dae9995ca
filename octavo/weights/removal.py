"""Takes a model out of the caches again; what other models need of it stays."""

import os
import shutil
from collections.abc import Iterator
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

    files: its names, in all snapshots of the hub's cache. repo: the hub's repository; None: the
    quick-start model.
    """

    name: str
    files: tuple[Path, ...]
    repo: str | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the files, contents with several names counted once."""
        sizes = {os.path.realpath(path): path.stat().st_size for path in self.files}
        return sum(sizes.values())

    def execute(self) -> int:
        """Remove it; the bytes that became free. Raises ModelFileError."""
        try:
            if self.repo is not None:
                return self._from_hub(hub_cache_folder(), self.repo)
            freed = self.size_bytes
            forget(SMOLLM2, os.environ)
            return freed
        except OSError as error:
            raise ModelFileError(f"{self.name} cannot be removed: {error.strerror}") from None

    def _from_hub(self, cache: Path, repo: str) -> int:
        """Whole snapshots where nothing else is in them, else the names; blobs by the library."""
        from huggingface_hub import scan_cache_dir

        mine = {os.path.join(os.path.realpath(path.parent), path.name) for path in self.files}
        folder = repo_folder(repo, cache)
        found = [r for r in scan_cache_dir(cache).repos if r.repo_path.name == folder.name]
        if not found or not found[0].revisions:  # a download that broke off early, say
            freed = self.size_bytes
            shutil.rmtree(folder)
            return freed
        whole, parts = [], []
        for revision in found[0].revisions:
            ours = [file for file in revision.files if str(file.file_path) in mine]
            if len(ours) == len(revision.files):
                whole.append(revision.commit_hash)
            else:
                parts += ours
        of_parts = scan_cache_dir(cache).delete_files(*parts)
        of_parts.execute()
        of_whole = scan_cache_dir(cache).delete_revisions(*whole)
        of_whole.execute()
        if not folder.exists():
            shutil.rmtree(cache / ".locks" / folder.name, ignore_errors=True)
        return of_parts.expected_freed_size + of_whole.expected_freed_size


def plan_removal(name: str) -> Removal:
    """What removing `name` (as `kept_models` has it, or a repository with all it holds) would do.

    Raises ModelFileError for a name that is not in the caches.
    """
    if name == SMOLLM2.name and (path := kept_path(SMOLLM2, os.environ)) is not None:
        return Removal(name, (path,))
    if (hub_id := parse_hub_id(name)) is not None:
        folder = repo_folder(hub_id.repo, hub_cache_folder())
        files = tuple(_files_of(hub_id, folder))
        if files or (hub_id.tag is None and folder.is_dir()):
            return Removal(name, files, hub_id.repo)
    raise ModelFileError(_unknown(name))


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


def _unknown(name: str) -> str:
    if Path(name).expanduser().exists():
        return f"{shown(name)} is not in a cache of Octavo: only what was fetched is removed"
    known = [model.name for model in kept_models()]
    listed = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    return f"{shown(name)} is not kept here; " + (f"kept are {listed}" if known else "nothing is")
