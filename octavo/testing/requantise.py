"""Re-encodes the matrices of a GGUF file: one model's weights in another tensor type."""

from functools import partial
from pathlib import Path

from octavo.testing.quantise import Encoded, encode
from octavo.testing.rewrite import FILE_TYPES, Planned, stored_pairs, write_planned
from octavo.weights.checkpoint import WeightTensor
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import read_gguf
from octavo.weights.gguf_metadata import ValueKind
from octavo.weights.mapped import StoredTensor

__all__ = ["FILE_TYPES", "reencode"]


def reencode(source: Path, target: Path, weight_type: str) -> None:
    """Write `target`: the GGUF model `source` (of one part) with every matrix in `weight_type`.

    weight_type: one of FILE_TYPES. Metadata (but `general.file_type`), vectors such as norms, and
    matrices that have the type already are kept byte for byte. Others are decoded to float32 and
    rounded to nearest, so an F32 file holds exactly what the source means. `target` appears whole.

    Raises KeyError for another type, ModelFileError for a file that cannot be read or decoded,
    ValueError for a matrix whose rows are not whole blocks of the type.
    """
    kind, file_type = TensorType[weight_type], FILE_TYPES[weight_type]
    tensors = read_gguf(source).tensors.values()
    write_planned(
        target,
        stored_pairs(source, {"general.file_type": (ValueKind.U32, file_type)}),
        [_planned(tensor, kind if len(tensor.shape) > 1 else tensor.type) for tensor in tensors],
    )


def _planned(tensor: StoredTensor, kind: TensorType) -> Planned:
    return Planned(tensor.name, tensor.shape, kind, partial(_encode, tensor, kind))


def _encode(tensor: StoredTensor, kind: TensorType) -> Encoded:
    """Rows stay in stored order: it does not depend on the type."""
    if kind is tensor.type:
        return Encoded(kind, tensor.shape, tensor.data)
    return encode(WeightTensor(tensor.name, tensor).float32(), kind)
