"""Opens a model folder or a GGUF file as a Checkpoint: configuration and tensors by one naming."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError
from octavo.weights import names
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.mapped import (
    MappedFile,
    StoredTensor,
    file_label,
    model_label,
    read_json_object,
    shown,
)
from octavo.weights.names import InterleavedHeads, PlusOne, Transform
from octavo.weights.quants import DECODED_TYPES, decode
from octavo.weights.safetensors import inside, read_folder

CONFIG_NAME = "config.json"
GENERATION_CONFIG_NAME = "generation_config.json"


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """One weight, as stored and as meant.

    name: in Hugging Face terms. shape: row-major, [out, in] for a linear. stored: the tensor in its
    file. transform: how what is stored differs from Hugging Face's; None: not at all.
    """

    name: str
    stored: StoredTensor
    transform: Transform | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Row-major shape; the transform does not change it."""
        return self.stored.shape

    @property
    def type(self) -> TensorType:
        """How the bytes of `raw` are encoded."""
        return self.stored.type

    def raw(self) -> NDArray[np.uint8]:
        """The stored bytes, mapped and read-only, rows in stored order (see `row_order`).

        Not for a tensor whose stored values are others (`PlusOne`).
        """
        return self.stored.data

    def row_order(self) -> NDArray[np.intp] | None:
        """[rows]: the stored row of each row of the tensor as meant; None: they are the same."""
        if not isinstance(self.transform, InterleavedHeads):
            return None
        return self.transform.row_order(self.shape[0])

    def float32(self) -> NDArray[np.float32]:
        """The values as meant, of `shape`; perhaps a read-only view of the file.

        Raises ModelFileError for a type that is not decoded.
        """
        self.check_decoded()
        values = decode(self.type, self.raw(), self.shape)
        if isinstance(self.transform, PlusOne):
            return values - np.float32(1)
        order = self.row_order()
        return values if order is None else values[order]

    def check_decoded(self) -> None:
        """Raise ModelFileError if this version cannot decode the tensor's type."""
        if self.type not in DECODED_TYPES:
            known = ", ".join(kind.value for kind in TensorType if kind in DECODED_TYPES)
            raise ModelFileError(
                f"{self.stored.file}: {self.type.value} is not decoded by this version "
                f"(tensor {shown(self.stored.name)}); it decodes {known}"
            )


@dataclass(frozen=True)
class Checkpoint:
    """An open model.

    path: the folder or the (first) file. metadata: of a GGUF file, values as in `GGUFFile`; {} for
    a folder. hf_config: config.json of a folder; {} for GGUF. architecture: GGUF's
    `general.architecture` or the first of config.json's `architectures`. generation_config: {} if
    absent or malformed. tensors: by Hugging Face name.
    """

    format: Literal["gguf", "safetensors"]
    path: Path
    architecture: str
    metadata: dict[str, Any]
    hf_config: dict[str, Any]
    generation_config: dict[str, Any]
    tensors: Mapping[str, WeightTensor]
    files: tuple[MappedFile, ...]

    def close(self) -> None:
        """Let the files go; memory is unmapped when the last array that views it is gone."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a model folder (config.json, safetensors) or a GGUF file.

    Structure is checked here, the set of tensors by `check_tensors`. Raises ModelFileError, whose
    one line names the file and the fault.
    """
    # os.path asks without raising, whatever the path is.
    return _open_folder(path) if os.path.isdir(path) else _open_gguf(path)


def _open_folder(folder: Path) -> Checkpoint:
    # The name may be "." or end in "..": messages show the real one.
    folder = folder.resolve()
    config = read_config(folder)
    architectures = config.get("architectures")
    if (
        not isinstance(architectures, list)
        or not architectures
        or not all(isinstance(name, str) for name in architectures)
    ):
        raise ModelFileError(f"{CONFIG_NAME}: 'architectures' must be a list of names")
    tensors, files = read_folder(folder)
    return Checkpoint(
        format="safetensors",
        path=folder,
        architecture=architectures[0],
        metadata={},
        hf_config=config,
        generation_config=_generation_config(folder),
        tensors={name: WeightTensor(name, stored) for name, stored in tensors.items()},
        files=files,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder. Raises ModelFileError."""
    if not os.path.lexists(folder / CONFIG_NAME):
        raise ModelFileError(
            f"{model_label(folder)}: the folder has no {CONFIG_NAME}, so it is no model folder; "
            "name the folder that holds it, or a .gguf file"
        )
    return read_json_object(inside(folder, CONFIG_NAME, CONFIG_NAME))


def _generation_config(folder: Path) -> dict[str, Any]:
    """Absent or malformed: as if empty (behaviour of the reference servers)."""
    try:
        return read_json_object(inside(folder, GENERATION_CONFIG_NAME, GENERATION_CONFIG_NAME))
    except ModelFileError:
        return {}


def _open_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    name = file_label(path)
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFileError(f"{name}: 'general.architecture' is missing or no string")
    rules = names.RULES.get(architecture)
    if rules is None:
        raise ModelFileError(
            f"{name}: the GGUF architecture {shown(architecture)} is not supported; "
            f"supported are {', '.join(names.RULES)}"
        )
    tensors: dict[str, WeightTensor] = {}
    for stored in file.tensors.values():
        new = names.to_hugging_face(rules, stored.name)
        if new in tensors:
            other = tensors[new].stored.name
            raise ModelFileError(f"{name}: {shown(stored.name)} and {shown(other)} are one tensor")
        try:
            transform = names.transform(
                rules, stored.name, stored.shape[0], architecture, file.metadata
            )
        except ModelFileError as error:
            raise ModelFileError(f"{name}: {error}") from None
        tensors[new] = WeightTensor(new, stored, transform)
    return Checkpoint(
        format="gguf",
        path=path,
        architecture=architecture,
        metadata=file.metadata,
        hf_config={},
        generation_config={},
        tensors=tensors,
        files=file.files,
    )
