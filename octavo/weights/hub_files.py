"""Which files of a hub repository make a model that Octavo reads: a choice among names, no I/O."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from octavo.errors import ModelFileError
from octavo.weights.checkpoint import CONFIG_NAME, GENERATION_CONFIG_NAME
from octavo.weights.mapped import shown
from octavo.weights.safetensors import INDEX_NAME, SINGLE_NAME

DEFAULT_QUANT = "Q4_K_M"
"""What `org/name` means of a repository that holds GGUF files only."""

TOKENIZER_NAMES = ("tokenizer.json", "tekken.json", "tiktoken.model", "tokenizer.model")
TOKENIZER_SUFFIX = ".tiktoken"
SMALL_NAMES = (
    *(CONFIG_NAME, GENERATION_CONFIG_NAME, *TOKENIZER_NAMES, "tokenizer_config.json"),
    *("special_tokens_map.json", "chat_template.jinja"),
)

_REPO_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_]|[.-](?![.-]))*(?<![.-])"
_HUB_ID = re.compile(rf"({_REPO_PART}/{_REPO_PART})(?::([\w.-]+))?", re.ASCII)
_MAX_REPO_CHARS = 96  # the hub's own limit
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})", re.DOTALL)
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q[1-8]|TQ[12]|MXFP4|NVFP4|BF16|FP?16|FP?32)(?:_[A-Z0-9]+)*)"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_NOT_MODELS = ("mmproj", "imatrix")  # projectors of media, statistics of quantisers
_SHOWN = 12  # quantisations that a message lists


class SeveralModels(ModelFileError):
    """The hub id means more than one file."""


@dataclass(frozen=True, slots=True)
class HubId:
    """`org/name`, or `org/name:tag` with the quantisation of a GGUF file."""

    repo: str
    tag: str | None = None

    def __str__(self) -> str:
        return self.repo if self.tag is None else f"{self.repo}:{self.tag}"


def parse_hub_id(text: str) -> HubId | None:
    """None: the text has not the form of a hub id (it may be a path that is not there)."""
    match = _HUB_ID.fullmatch(text)
    if match is None or len(match[1]) > _MAX_REPO_CHARS or text.lower().endswith(".gguf"):
        return None
    return HubId(match[1], match[2])


class GgufModel(NamedTuple):
    """A GGUF file of a repository. parts: its names, several if it is split. stem: without the
    folder, the number of the part and `.gguf`. is_whole: no part is missing."""

    stem: str
    parts: tuple[str, ...]
    is_whole: bool

    @property
    def quant(self) -> str:
        """The quantisation in the name (of a folder, if the file's has none), else the stem."""
        return quant_in(self.stem) or quant_in(str(PurePosixPath(self.parts[0]).parent), self.stem)


@dataclass(frozen=True, slots=True)
class Choice:
    """files: names to have, those of weights last. gguf: the file to open; None: the folder.

    is_sharded: the names of the weights stand in the index, which is one of `files`.
    """

    files: tuple[str, ...]
    gguf: str | None = None
    is_sharded: bool = False


def choose_files(names: Iterable[str], tag: str | None) -> Choice:
    """The model that a hub id with this tag means among the files of its repository.

    Without a tag: the safetensors at the top of the repository, else the GGUF file of
    DEFAULT_QUANT, else the only GGUF file. Raises ModelFileError, without the repository's name.
    """
    present = set(names)
    if tag is None and CONFIG_NAME in present and present & {SINGLE_NAME, INDEX_NAME}:
        return _safetensors(present)
    models = gguf_models(present)
    if models:
        chosen = _by_tag(models, tag) if tag is not None else _default(models)
        if not chosen.is_whole:
            raise ModelFileError(f"parts of {shown(chosen.stem)} are missing")
        for name in chosen.parts:
            check_name(name)
        return Choice(chosen.parts, chosen.parts[0])
    if tag is not None:
        raise ModelFileError(f"there are no GGUF files, so no {tag} either; leave :{tag} out")
    raise ModelFileError(_nothing(present))


def gguf_models(names: Iterable[str]) -> list[GgufModel]:
    """The GGUF models among the names, by stem; parts of a split one together and in order."""
    groups: dict[tuple[str, str, int], dict[int, str]] = {}
    for name in names:
        path = PurePosixPath(name)
        if path.suffix.lower() != ".gguf" or path.name.lower().startswith(_NOT_MODELS):
            continue
        part = _PART.fullmatch(path.stem)
        stem, number, count = (part[1], int(part[2]), int(part[3])) if part else (path.stem, 1, 1)
        groups.setdefault((str(path.parent), stem, count), {})[number] = name
    models = []
    for (_, stem, count), parts in sorted(groups.items()):
        ordered = tuple(parts[number] for number in sorted(parts))
        models.append(GgufModel(stem, ordered, sorted(parts) == list(range(1, count + 1))))
    return models


def quant_in(name: str, default: str = "") -> str:
    """The last quantisation that a name spells, in capitals: `x-q4_k_m-it` -> `Q4_K_M`."""
    found = _QUANT.findall(name)
    return found[-1].upper() if found else default


def shard_names(index: object) -> tuple[str, ...]:
    """The files that a parsed index names, sorted. Raises ModelFileError."""
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ModelFileError(f"{INDEX_NAME}: 'weight_map' must map tensors to file names")
    for name in set(names):
        check_name(name)
        if not name.endswith(".safetensors"):
            raise ModelFileError(f"{INDEX_NAME}: {shown(name)} is no .safetensors file")
    return tuple(sorted(set(names)))


def check_name(name: str) -> None:
    """Raise ModelFileError for the name of a file that could leave its folder or a line of text."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or ":" in parts[0]:
        raise ModelFileError(f"the file name {shown(name)} leads outside the model's folder")
    if not name.isprintable():
        raise ModelFileError(
            f"the file name {shown(name)} has characters that cannot be printed; such a file is "
            "not used"
        )


# -------------------------------------------------------------------------------------- inside


def _safetensors(present: set[str]) -> Choice:
    small = [name for name in SMALL_NAMES if name in present]
    ranks = sorted(n for n in present if n.endswith(TOKENIZER_SUFFIX) and "/" not in n)
    for name in ranks:
        check_name(name)
    if SINGLE_NAME in present:  # as `read_folder` prefers it
        return Choice((*small, *ranks, SINGLE_NAME))
    return Choice((*small, *ranks, INDEX_NAME), is_sharded=True)


def _by_tag(models: Sequence[GgufModel], tag: str) -> GgufModel:
    # Not within a longer word: Q4_K is not in Q4_K_M, nor Q4_XS in IQ4_XS; x_Q4_0 holds Q4_0.
    carries = re.compile(
        rf"(?<![A-Za-z0-9]){re.escape(tag)}(?![A-Za-z0-9]|_[A-Za-z0-9])", re.IGNORECASE
    )
    found = [model for model in models if carries.search(model.stem)]
    found = found or [
        model for model in models if carries.search(str(PurePosixPath(model.parts[0]).parent))
    ]
    if not found:
        raise ModelFileError(f"there is no {tag}; there are {_quants(models)}")
    found.sort(key=lambda model: len(model.stem))
    # `x-Q4_K_M` before `x-UD-Q4_K_M`, which has a tag of its own; other names are not guessed at.
    match = carries.search(found[0].stem)
    begin = found[0].stem[: match.start()] if match else ""
    is_plain = begin and all(m.stem.startswith(begin) for m in found[1:])
    if len(found) > 1 and (not is_plain or len(found[1].stem) == len(found[0].stem)):
        names = ", ".join(shown(model.stem) for model in found[:_SHOWN])
        raise SeveralModels(f"{tag} means several files: {names}; name one of them behind the :")
    return found[0]


def _default(models: Sequence[GgufModel]) -> GgufModel:
    if len(models) == 1:
        return models[0]
    if any(model.quant == DEFAULT_QUANT for model in models):
        return _by_tag(models, DEFAULT_QUANT)
    raise SeveralModels(
        f"there are several GGUF files and no {DEFAULT_QUANT} among them; name one behind a :, "
        f"of {_quants(models)}"
    )


def _quants(models: Sequence[GgufModel]) -> str:
    names = sorted({model.quant for model in models})
    safe = [name if name.isprintable() and len(name) <= 80 else shown(name) for name in names]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(safe[:_SHOWN]) + more


def _nothing(present: set[str]) -> str:
    message = f"there is neither a {CONFIG_NAME} with {SINGLE_NAME} (or its index) nor a .gguf file"
    pickles = sorted(n for n in present if n.endswith((".bin", ".pt", ".pth", ".ckpt")))
    if pickles:
        message += f"; {shown(pickles[0])} is a pickle, which is never opened"
    return message
