"""A model with every matrix in one tensor type, widened first where the type's blocks need it."""

from pathlib import Path

from octavo.testing.pad import pad_to_multiple
from octavo.testing.requantise import reencode
from octavo.weights.encodings import TensorType
from octavo.weights.gguf import read_gguf


def write_in_type(source: Path, target: Path, weight_type: str) -> bool:
    """Write `target`: the GGUF model `source` with all matrices in `weight_type`; was it widened?

    weight_type: one of FILE_TYPES. A model whose rows its blocks do not divide is widened with
    zeros (`pad_to_multiple`), which only a plain Llama can be.

    Raises what `reencode` and `pad_to_multiple` raise, RuntimeError if a matrix got another type.
    """
    kind = TensorType[weight_type]
    matrices = [t for t in read_gguf(source).tensors.values() if len(t.shape) > 1]
    widen = any(tensor.shape[-1] % kind.block_size for tensor in matrices)
    (pad_to_multiple if widen else reencode)(source, target, weight_type)
    written = {t.name: t.type for t in read_gguf(target).tensors.values() if len(t.shape) > 1}
    odd = {name: found.value for name, found in written.items() if found is not kind}
    if odd or len(written) != len(matrices):
        raise RuntimeError(
            f"{len(written)} matrices instead of {len(matrices)}, or not {kind}: {odd}"
        )
    return widen
