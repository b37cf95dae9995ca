"""Opens strangers' files: mapped weights and small JSON; errors name the file by its base name."""

import json
import mmap
import os
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError
from octavo.weights.encodings import TensorType

MAX_JSON_BYTES = 32 << 20
"""Largest JSON file we parse: the index of a checkpoint of 140,000 tensors has 16 MiB."""

_LABEL_LENGTH = 255


def shown(text: str, limit: int = 80) -> str:
    """Text out of a file, made safe for a one-line message: quoted, escaped and cut."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def shown_value(value: object, limit: int = 60) -> str:
    """Any value out of a file for a one-line message, cut to a readable length."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = repr(value[:limit] if isinstance(value, str | list | tuple | bytes) else value)
    return text if len(text) <= limit else text[:limit] + "..."


def file_label(path: Path) -> str:
    """The base name for messages; escaped if it could break a line (indexes name files too)."""
    name = path.name
    return name if name.isprintable() and len(name) <= _LABEL_LENGTH else shown(name)


def model_label(path: Path) -> str:
    """The name of a model's folder or file for messages.

    A snapshot in the hub's cache is called by its repository: its own name is a commit.
    """
    repo = path.parent.parent.name
    if path.parent.name == "snapshots" and repo.startswith("models--"):
        return file_label(Path(repo)).removeprefix("models--").replace("--", "/", 1)
    return file_label(path)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as a file holds it.

    shape: row-major, the row length last. data: all its bytes, mapped, not copied. file: where it
    is, for messages.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    data: NDArray[np.uint8]
    file: str


class MappedFile:
    """A whole regular file, mapped read-only.

    name: base name for messages. data: the mapping (slices are copies; empty after `close`). bytes:
    the same as an array without a copy; slices of it keep the mapping alive after `close`.

    Such a slice is the file, not what the file was: its bytes change when the file is written in
    place, and reading it after the file was truncated kills the process (SIGBUS). Whoever keeps
    values longer than loading takes must copy them, or say that the file must stay as it is.
    """

    def __init__(self, path: Path) -> None:
        self.name = file_label(path)
        self.size = _regular_size(path)
        if self.size == 0:
            raise ModelFileError(f"{self.name}: the file is empty")
        try:
            with path.open("rb") as file:
                self.data: mmap.mmap | bytes = mmap.mmap(
                    file.fileno(), self.size, access=mmap.ACCESS_READ
                )
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{self.name}: cannot be read: {_reason(error)}") from None
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)

    def broken(self, what: str) -> ModelFileError:
        """The error that says what is wrong with this file."""
        return ModelFileError(f"{self.name}: {what}")

    def close(self) -> None:
        """Forget the mapping; it ends once the last array that was sliced from it is gone."""
        self.data = b""
        self.bytes = np.empty(0, np.uint8)


def release_pages(mapping: mmap.mmap | bytes) -> None:
    """Give a MappedFile's memory back to the system, which reads the file again when it is used."""
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def read_json(path: Path) -> Any:
    """Parse a small JSON file. Raises ModelFileError that names the file and the fault."""
    name = file_label(path)
    if _regular_size(path) > MAX_JSON_BYTES:
        raise ModelFileError(f"{name}: is larger than {MAX_JSON_BYTES >> 20} MiB")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{name}: cannot be read: {_reason(error)}") from None
    return parse_json(name, data)


def read_json_object(path: Path) -> dict[str, Any]:
    """`read_json` of a file that must hold an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ModelFileError(f"{file_label(path)}: holds no JSON object")
    return value


def parse_json(name: str, data: bytes) -> Any:
    """Parse UTF-8 JSON out of the file `name`; an object that repeats a key is refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice = counts.most_common(1)[0][0]
            raise ModelFileError(f"{name}: the key {shown(twice)} occurs twice in one object")
        return found

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except RecursionError:
        raise ModelFileError(f"{name}: JSON nested too deeply") from None
    except ValueError as error:  # also UnicodeDecodeError, and numbers with too many digits
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ModelFileError(f"{name}: is not valid JSON{where}") from None


def _regular_size(path: Path) -> int:
    """Size in bytes; asked before opening, as opening a pipe would wait for ever."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{file_label(path)}: cannot be read: {_reason(error)}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{file_label(path)}: is not a regular file")
    return status.st_size


def _reason(error: OSError | ValueError) -> str:
    """The cause without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or "unusable name or contents"
