"""Fetches the files of a hub model into the hub's cache, and goes on with what was broken off.

huggingface_hub names the files, knows token, endpoint and proxy, and carries the bytes. It throws
a broken download away, though; so the blobs are written here, to `HASH.octavo.incomplete` first.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from octavo.errors import ModelFileError
from octavo.weights.checkpoint import read_config
from octavo.weights.hub_cache import repo_folder
from octavo.weights.hub_errors import in_words, is_of_disk
from octavo.weights.hub_files import Choice, HubId, check_name, choose_files, shard_names
from octavo.weights.mapped import read_json, shown
from octavo.weights.progress import Report, download_progress
from octavo.weights.safetensors import INDEX_NAME, SINGLE_NAME

if TYPE_CHECKING:
    from huggingface_hub.file_download import HfFileMetadata

Check = Callable[[Mapping[str, Any], str], None]
"""Looks at a config.json, given with the model's name, before more is fetched; may raise."""

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 64 << 20  # left free on the disk
# The etag becomes a file name. Those of large files are their SHA-256.
_ETAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,127}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch(hub_id: HubId, cache: Path, progress: bool, check: Check | None = None) -> Path:
    """Fetch what the newest version of the model lacks in the cache; its folder or GGUF file.

    check: is given config.json before any weights are fetched, and raises ConfigError if the model
    is of no use. Raises ModelFileError in one line that says what to do.
    """
    try:
        return _Fetch(hub_id, cache, progress).run(check)
    except ModelFileError as error:
        raise type(error)(f"{hub_id}: {error}") from None
    except OSError as error:
        if not is_of_disk(error):
            raise
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise ModelFileError(
            f"{hub_id} cannot be kept in the cache folder {cache}: {why}; make room there, or name "
            "another folder by HF_HOME"
        ) from None


@dataclass(frozen=True, slots=True)
class _File:
    """One file of the repository: where its bytes are, and the hash that names its blob."""

    name: str
    etag: str
    size_bytes: int
    url: str
    headers: dict[str, str]


class _Fetch:
    """One download: of a repository at one commit."""

    def __init__(self, hub_id: HubId, cache: Path, progress: bool) -> None:
        self._id = hub_id
        self._progress = progress
        self._repo = repo_folder(hub_id.repo, cache)
        self._locks = cache / ".locks" / self._repo.name
        self._commit = ""

    def run(self, check: Check | None) -> Path:
        self._commit, names = self._listing()
        choice = choose_files(names, self._id.tag)
        if choice.gguf is not None:
            self._fetch(choice.files)
        else:
            # The weights last: where they are whole, everything else is there as well.
            self._fetch_small(choice, check)
            self._fetch(self._weight_names(choice, names))
        self._point_main_here()
        return self._snapshot / choice.gguf if choice.gguf else self._snapshot

    def _fetch_small(self, choice: Choice, check: Check | None) -> None:
        """Everything of a folder but its weights."""
        self._fetch([name for name in choice.files if name != SINGLE_NAME], "configuration of ")
        if check is not None:
            check(read_config(self._snapshot), self._id.repo)

    def _weight_names(self, choice: Choice, names: Sequence[str]) -> Sequence[str]:
        """The files of a folder's weights; of sharded ones the index tells, which is there."""
        if not choice.is_sharded:
            return (SINGLE_NAME,)
        shards = shard_names(read_json(self._snapshot / INDEX_NAME))
        if missing := [name for name in shards if name not in names]:
            raise ModelFileError(f"{INDEX_NAME} names {shown(missing[0])}, which is not there")
        return shards

    @property
    def _snapshot(self) -> Path:
        return self._repo / "snapshots" / self._commit

    def _listing(self) -> tuple[str, list[str]]:
        """The commit that `main` is now, and the names of its files."""
        from huggingface_hub import HfApi

        with in_words(self._id):
            info = HfApi(library_name="octavo").model_info(self._id.repo)
        if not info.sha or not _COMMIT.fullmatch(info.sha):
            raise ModelFileError("the hub names no commit; is HF_ENDPOINT a hub?")
        return info.sha, [file.rfilename for file in info.siblings or ()]

    def _fetch(self, names: Sequence[str], what: str = "") -> None:
        """Fetch those of the names that the snapshot lacks, with one bar for all of them."""
        lacking = [name for name in names if not (self._snapshot / name).is_file()]
        files = [self._describe(name) for name in lacking]
        sizes = {file.etag: file.size_bytes for file in files}
        for folder in (self._repo / "blobs", self._snapshot, self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        self._check_room(files)
        if not files:
            return
        done = 0
        title = f"fetching {what}{self._id}"
        with download_progress(title, sum(sizes.values()), quiet=not self._progress) as report:
            for file in files:
                self._fetch_blob(file, _behind(done, report))
                self._link(file)
                done += sizes.pop(file.etag, 0)
                report(done)

    def _describe(self, name: str) -> _File:
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        check_name(name)
        url = hf_hub_url(self._id.repo, name, revision=self._commit)
        headers = build_hf_headers(library_name="octavo")
        with in_words(self._id):
            found = get_hf_file_metadata(url, headers=headers)
        if not found.etag or not _ETAG.fullmatch(found.etag) or found.size is None:
            raise ModelFileError(f"the hub tells no usable hash and size of {shown(name)}")
        if found.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise ModelFileError(
                f"{shown(name)} has {found.size / 1e9:.0f} GB, and the hub hands out files up to "
                f"{constants.MAX_HTTP_DOWNLOAD_SIZE / 1e9:.0f} GB; take a split or a smaller one"
            )
        return _File(name, found.etag, found.size, found.location, _headers(url, found, headers))

    def _check_room(self, files: Sequence[_File]) -> None:
        """Raise ModelFileError when the disk has no room for what is missing."""
        blobs = self._repo / "blobs"
        lacking = {file.etag: file.size_bytes for file in files}
        for etag in lacking:
            for path in (blobs / etag, _incomplete(blobs / etag)):
                if path.is_file():
                    lacking[etag] -= min(path.stat().st_size, lacking[etag])
        needed, free = sum(lacking.values()), shutil.disk_usage(blobs).free
        if needed and needed + _SPARE_BYTES > free:
            raise ModelFileError(
                f"{needed / 1e6:.0f} MB are to be fetched, but {free / 1e6:.0f} MB are free in the "
                f"cache folder {self._repo.parent}; make room there, or name another by HF_HOME"
            )

    def _fetch_blob(self, file: _File, report: Report) -> None:
        """Have the contents in `blobs`. Several processes at once: one fetches, the others wait."""
        blob = self._repo / "blobs" / file.etag
        with _locked(self._locks / f"{file.etag}.octavo.lock"):
            if blob.is_file():
                return
            incomplete = _incomplete(blob)
            with open(incomplete, "ab") as out:
                if out.tell() > file.size_bytes:  # of a file that was another then
                    out.truncate(0)
                    out.seek(0)
                self._download(file, out, report)
                out.flush()
                os.fsync(out.fileno())
            if _SHA256.fullmatch(file.etag) and _sha256(incomplete) != file.etag:
                incomplete.unlink()
                raise ModelFileError(
                    f"{shown(file.name)} is not what the hub says: its SHA-256 differs; it was not "
                    "kept, try again"
                )
            os.replace(incomplete, blob)

    def _download(self, file: _File, out: BinaryIO, report: Report) -> None:
        """Append what is missing of the file. Raises ModelFileError; what came stays."""
        from huggingface_hub.file_download import http_get

        begin = out.tell()
        report(begin)
        if begin == file.size_bytes:
            return
        with in_words(self._id), _quiet_bars():
            http_get(
                file.url,
                _Counted(out, report),  # type: ignore[arg-type]
                resume_size=begin,
                headers=file.headers,
                expected_size=file.size_bytes,
                displayed_filename=file.name,
            )

    def _link(self, file: _File) -> None:
        """Give the blob its name in the snapshot."""
        path = self._snapshot / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        target = os.path.relpath(self._repo / "blobs" / file.etag, path.parent)
        os.symlink(target, scratch)
        os.replace(scratch, path)

    def _point_main_here(self) -> None:
        """Last of all: whoever follows `main` finds a whole model."""
        main = self._repo / "refs" / "main"
        main.parent.mkdir(exist_ok=True)
        scratch = main.with_name(f".main.{os.getpid()}")
        scratch.write_text(self._commit, "ascii")
        os.replace(scratch, main)


class _Counted:
    """A file that reports its length after each write. What `http_get` asks of a file."""

    def __init__(self, file: BinaryIO, report: Report) -> None:
        self._file = file
        self._report = report

    def write(self, data: bytes) -> int:
        written = self._file.write(data)
        self._report(self._file.tell())
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _behind(done: int, report: Report) -> Report:
    """Reports the bytes of one file behind those of the files before it."""
    return lambda size: report(done + size)


def _incomplete(blob: Path) -> Path:
    """Ends like the library's own, so that its tools know what it is."""
    return blob.with_name(f"{blob.name}.octavo.incomplete")


def _headers(url: str, found: "HfFileMetadata", headers: dict[str, str]) -> dict[str, str]:
    """The hub's token is for the hub: not for the store that a redirect leads to."""
    from urllib.parse import urlsplit

    if urlsplit(url).netloc == urlsplit(found.location).netloc:
        return headers
    return {name: value for name, value in headers.items() if name.lower() != "authorization"}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; waits. The kernel frees it when the process ends, however it ends."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _quiet_bars() -> Iterator[None]:
    """Without the library's bar: ours stands for all files."""
    from huggingface_hub import constants
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        disable_progress_bars,
        enable_progress_bars,
    )

    if constants.HF_HUB_DISABLE_PROGRESS_BARS is not None:  # the user's word; it cannot be changed
        yield
        return
    disable_progress_bars("huggingface_hub.http_get")
    try:
        yield
    finally:
        enable_progress_bars("huggingface_hub.http_get")
