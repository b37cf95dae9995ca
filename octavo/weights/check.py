"""Compares the tensors of a checkpoint with those that a model's program wants, before loading."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from octavo.errors import ModelFileError
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.mapped import model_label, shown

_SHOWN = 3  # names in one message


def check_tensors(
    checkpoint: Checkpoint,
    expected: Mapping[str, tuple[int, ...]],
    may_be_absent: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> None:
    """Raise ModelFileError on a missing, extra or misshapen tensor, or one of an undecoded type.

    expected: Hugging Face name -> shape. may_be_absent: prefixes of expected names that a
    checkpoint may lack. ignored: prefixes of names that may be there and are not wanted. An entry
    with a `*` is a pattern for the whole name (`*.rotary_emb.inv_freq`).
    """
    tensors = checkpoint.tensors
    name = model_label(checkpoint.path)
    missing = [key for key in expected if key not in tensors and not _covers(may_be_absent, key)]
    if missing:
        raise ModelFileError(f"{name}: {_count(missing)} missing: {_names(missing)}")
    extra = [key for key in tensors if key not in expected and not _covers(ignored, key)]
    if extra:
        stored = [tensors[key].stored.name for key in extra]
        raise ModelFileError(f"{name}: {_count(extra)} not of this architecture: {_names(stored)}")
    for key, shape in expected.items():
        tensor = tensors.get(key)
        if tensor is None:
            continue
        if tensor.shape != tuple(shape):
            raise ModelFileError(
                f"{tensor.stored.file}: tensor {shown(tensor.stored.name)} has the shape "
                f"{list(tensor.shape)}, but the configuration asks for {list(shape)}"
            )
        tensor.check_decoded()


def _covers(patterns: Iterable[str], name: str) -> bool:
    return any(
        fnmatchcase(name, pattern) if "*" in pattern else name.startswith(pattern)
        for pattern in patterns
    )


def _count(names: Sequence[str]) -> str:
    return "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(shown(name) for name in names[:_SHOWN]) + more
