"""Which family serves an architecture; `build`: from an open checkpoint to a checked program."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from octavo.errors import ConfigError, ModelFileError
from octavo.graph import Graph, Program
from octavo.weights.check import check_tensors
from octavo.weights.checkpoint import CONFIG_NAME, Checkpoint, WeightTensor
from octavo.weights.mapped import model_label, shown_value

FAMILY_MODULES = ("gemma", "llama")


class ModelConfig(Protocol):
    """What the rest of Octavo reads of a family's config. vocab_size: rows of logits."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """From config.json."""
        ...

    @classmethod
    def from_gguf(
        cls, metadata: Mapping[str, Any], tensors: Mapping[str, WeightTensor]
    ) -> "ModelConfig":
        """From a GGUF file."""
        ...

    def weight_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """As `Graph` wants them."""
        ...

    def ignored_tensors(self) -> tuple[str, ...]:
        """Prefixes or patterns of tensors that may be present and are not read."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """How models of some architectures are read and written."""

    architectures: tuple[str, ...]  # Hugging Face names
    gguf: tuple[str, ...]  # values of general.architecture
    config: type[Any]  # implements ModelConfig
    write: Callable[[Graph, Any], None]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be given to a backend."""

    architecture: str
    program: Program
    config: ModelConfig


_FAMILIES: list[Family] = []  # filled once, when the family modules are imported

_Config = TypeVar("_Config")
_Write = Callable[[Graph, _Config], None]


def register(
    *architectures: str, gguf: tuple[str, ...], config: type[_Config]
) -> Callable[[_Write[_Config]], _Write[_Config]]:
    """Decorates the function that writes the program of these architectures."""

    def add(write: _Write[_Config]) -> _Write[_Config]:
        _FAMILIES.append(Family(architectures, gguf, config, write))
        return write

    return add


def families() -> tuple[Family, ...]:
    """All of them."""
    for name in FAMILY_MODULES:
        import_module(f"octavo.models.{name}")
    return tuple(_FAMILIES)


def architecture_names() -> frozenset[str]:
    """Every name of an architecture that is served, of config.json and of GGUF."""
    return frozenset(name for family in families() for name in family.architectures + family.gguf)


def build(checkpoint: Checkpoint) -> Model:
    """Read the configuration, write the program, check the tensors against it; loads nothing.

    ConfigError: the architecture is unknown. ModelFileError: a setting of the file is wrong or not
    built, or a tensor is missing, extra or misshapen; the message names it.
    """
    architecture, family = _resolve(checkpoint)
    is_gguf = checkpoint.format == "gguf"
    label = model_label(checkpoint.path)
    where = label if is_gguf else f"{label}/{CONFIG_NAME}"
    try:
        config: ModelConfig = (
            family.config.from_gguf(checkpoint.metadata, checkpoint.tensors)
            if is_gguf
            else family.config.from_hf(checkpoint.hf_config)
        )
    except ModelFileError as error:
        raise ModelFileError(f"{where}: {error}") from None
    graph = Graph(config.weight_shapes())
    family.write(graph, config)
    program = graph.program()
    check_tensors(checkpoint, program.weights, ignored=config.ignored_tensors())
    return Model(architecture, program, config)


def check_config(config: Mapping[str, Any], label: str) -> None:
    """Raise ConfigError if no family serves the architectures of a config.json."""
    names = config.get("architectures")
    if isinstance(names, list):  # else opening the model says what is wrong
        _family([name for name in names if isinstance(name, str)], False, label)


def _resolve(checkpoint: Checkpoint) -> tuple[str, Family]:
    """The first architecture of the checkpoint that some family serves."""
    is_gguf = checkpoint.format == "gguf"
    wanted = [checkpoint.architecture] if is_gguf else list(checkpoint.hf_config["architectures"])
    return _family(wanted, is_gguf, model_label(checkpoint.path))


def _family(wanted: Sequence[str], is_gguf: bool, label: str) -> tuple[str, Family]:
    known = {
        name: family
        for family in families()
        for name in (family.gguf if is_gguf else family.architectures)
    }
    for name in wanted:
        if name in known:
            return name, known[name]
    raise ConfigError(
        f"{label}: the architecture {', '.join(map(shown_value, wanted[:3]))} is not "
        f"known; known are {', '.join(sorted(known))}"
    )
