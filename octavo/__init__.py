"""Octavo: an inference server for local models. Importing it is cheap; rooms load on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.errors import OctavoError as OctavoError
    from octavo.serving.llm import LLM as LLM
    from octavo.serving.offline_params import SamplingParams as SamplingParams
    from octavo.serving.results import Completion as Completion

__version__ = "0.1.0"

# Name -> the module that has it, imported when the name is first used.
_EXPORTS = {
    "LLM": "octavo.serving.llm",
    "SamplingParams": "octavo.serving.offline_params",
    "Completion": "octavo.serving.results",
    "OctavoError": "octavo.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_EXPORTS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
