"""Reads safetensors files and the sharded folders of the hub: checked headers, mapped tensors.

Why not the `safetensors` package: for NumPy it copies instead of mapping and has no BF16, and its
errors name neither tensor nor file. The format is eight bytes of length and a JSON object; the
checks below are all there is to it. Source: the format description of huggingface/safetensors.
"""

import os
from pathlib import Path
from typing import Any

from octavo.errors import ModelFileError
from octavo.weights.encodings import SAFETENSORS_TYPES, TensorType
from octavo.weights.mapped import (
    MappedFile,
    StoredTensor,
    model_label,
    parse_json,
    read_json_object,
    shown,
)

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
MAX_DIMENSIONS = 8
MAX_HEADER_BYTES = 8 << 20  # per file; shards of the largest checkpoints have about 1 MiB
MAX_TENSORS = 1 << 16  # per file
LENGTH_BYTES = 8  # of the header's length, in front of it

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def read_safetensors(path: Path) -> tuple[dict[str, StoredTensor], MappedFile]:
    """The tensors of one file. Raises ModelFileError that names the file and the fault."""
    file = MappedFile(path)
    header, data_start = _read_header(file)
    header.pop("__metadata__", None)
    tensors = {name: _read_entry(file, name, entry, data_start) for name, entry in header.items()}
    _check_coverage(file, header, data_start)
    return tensors, file


def read_folder(folder: Path) -> tuple[dict[str, StoredTensor], tuple[MappedFile, ...]]:
    """The tensors of a model folder: `model.safetensors`, else the shards of its index.

    No other file is opened: pickles never are. Raises ModelFileError.
    """
    if os.path.exists(folder / SINGLE_NAME):  # a probe that never raises
        tensors, file = read_safetensors(inside(folder, SINGLE_NAME, SINGLE_NAME))
        return tensors, (file,)
    if os.path.exists(folder / INDEX_NAME):
        return _read_shards(folder)
    raise ModelFileError(_nothing_to_read(folder))


def inside(folder: Path, name: str, named_by: str) -> Path:
    """`folder / name`, refused unless the file it leads to lies in the folder, links followed.

    The snapshots of the hub's cache are folders of links into `blobs` beside them, which may lead
    on into the `blobs` that all models of the cache share: those are right.
    named_by: the file that an error names.
    """
    path = folder / name
    try:
        real, root = path.resolve(), folder.resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links, an impossible name
        raise ModelFileError(f"{named_by}: {shown(name)} is no usable file name") from None
    roots = [root]
    if root.parent.name == "snapshots":
        repo = root.parent.parent
        roots += [repo / "blobs", repo.parent / "blobs"]
    if not any(real.is_relative_to(root) for root in roots):
        raise ModelFileError(f"{named_by}: {shown(name)} leads outside the model's folder")
    return path


def _read_header(file: MappedFile) -> tuple[dict[str, Any], int]:
    """The parsed header and where the data begins."""
    length = int.from_bytes(file.data[:LENGTH_BYTES], "little")
    if length > file.size - LENGTH_BYTES:
        raise file.broken(f"the header length {length} goes beyond the end of the file")
    if length > MAX_HEADER_BYTES:
        limit = f"{MAX_HEADER_BYTES >> 20} MiB"
        raise file.broken(f"the header of {length} bytes is larger than {limit}")
    end = LENGTH_BYTES + length
    header = parse_json(file.name, file.data[LENGTH_BYTES:end])
    if not isinstance(header, dict):
        raise file.broken("the header is no JSON object")
    if len(header) > MAX_TENSORS:
        raise file.broken(f"the header has {len(header)} tensors; up to {MAX_TENSORS} are read")
    return header, end


def _read_entry(file: MappedFile, name: str, entry: Any, data_start: int) -> StoredTensor:
    """Check one tensor by itself."""
    what = f"tensor {shown(name)}"
    if not isinstance(entry, dict):
        raise file.broken(f"{what} is not described by an object")
    shape = _numbers(file, entry, "shape", what)
    offsets = _numbers(file, entry, "data_offsets", what)
    kind = _tensor_type(file, entry.get("dtype"), what)
    if len(shape) > MAX_DIMENSIONS:
        raise file.broken(f"{what} has {len(shape)} dimensions; up to {MAX_DIMENSIONS} are read")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise file.broken(f"the 'data_offsets' of {what} are not a begin and an end")
    begin, end = (data_start + offset for offset in offsets)
    if end > file.size:
        raise file.broken(f"{what} lies beyond the end of the file: it ends at byte {end}")
    elements = 1
    for dim in shape:
        elements *= dim
    if elements % kind.block_size or kind.size_bytes(elements) != end - begin:
        raise file.broken(
            f"{what} of shape {list(shape)} and type {kind.value} does not fill "
            f"its {end - begin} bytes"
        )
    return StoredTensor(name, shape, kind, file.bytes[begin:end], file.name)


def _numbers(file: MappedFile, entry: dict[str, Any], key: str, what: str) -> tuple[int, ...]:
    """A list of numbers 0 <= n < 2**63."""
    values = entry.get(key)
    if not isinstance(values, list) or not all(
        type(value) is int and 0 <= value < 1 << 63 for value in values
    ):
        raise file.broken(f"the {key!r} of {what} is no list of whole numbers")
    return tuple(values)


def _tensor_type(file: MappedFile, dtype: Any, what: str) -> TensorType:
    kind = SAFETENSORS_TYPES.get(dtype) if isinstance(dtype, str) else None
    if kind is None:
        given = shown(dtype) if isinstance(dtype, str) else "missing or no text"
        raise file.broken(f"the dtype of {what} is {given}; it is none that we know")
    return kind


def _check_coverage(file: MappedFile, header: dict[str, Any], data_start: int) -> None:
    """The format wants the tensors side by side from the first byte of data to the last."""
    position = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != position:
            fault = "overlaps the one before" if begin < position else "comes after a gap"
            raise file.broken(f"tensor {shown(name)} {fault} in the data")
        position = end
    if data_start + position != file.size:
        raise file.broken("the file goes on after the last tensor")


def _read_shards(folder: Path) -> tuple[dict[str, StoredTensor], tuple[MappedFile, ...]]:
    index = read_json_object(inside(folder, INDEX_NAME, INDEX_NAME))
    weight_map = index.get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(name, str) for name in weight_map.values())
    ):
        raise ModelFileError(f"{INDEX_NAME}: 'weight_map' must map tensors to file names")
    shards: dict[str, dict[str, StoredTensor]] = {}
    tensors: dict[str, StoredTensor] = {}
    files: list[MappedFile] = []
    for shard in sorted(set(weight_map.values())):
        if not shard.endswith(".safetensors"):
            raise ModelFileError(f"{INDEX_NAME}: {shown(shard)} is no .safetensors file")
        found, file = read_safetensors(inside(folder, shard, INDEX_NAME))
        for name in found.keys() & tensors.keys():
            raise file.broken(f"the tensor {shown(name)} is in another shard too")
        shards[shard] = found
        tensors |= found
        files.append(file)
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise ModelFileError(f"{INDEX_NAME}: {shown(shard)} does not hold {shown(name)}")
    return tensors, tuple(files)


def _nothing_to_read(folder: Path) -> str:
    message = f"{model_label(folder)}: the folder has no {SINGLE_NAME} and no {INDEX_NAME}"
    try:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    except OSError:
        pickles = []
    if pickles:
        message += f"; {shown(pickles[0])} is a pickle, which is never opened: convert it"
    return message
