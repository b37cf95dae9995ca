"""Executes the code blocks of docs/adding-a-model.md: each is put where the line above it says."""

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from octavo.backends import reference
from octavo.graph import graph, ops, semantics
from octavo.models import registry
from octavo.weights import names

SEMANTICS = "add to octavo/graph/semantics.py"
OPS = "add to octavo/graph/ops.py"
OPS_ENTRY = "entry of OPS in octavo/graph/ops.py"
METHOD = "method of Graph in octavo/graph/graph.py"
RULES_ENTRY = "entry of RULES in octavo/weights/names.py"
FAMILY = "file octavo/models/arcee.py"
TESTS = "file tests/models/test_arcee.py"
TINY = "file octavo/testing/tiny_arcee.py"
PARITY = "file tests/parity/test_arcee_parity.py"
PLACES = (SEMANTICS, OPS, OPS_ENTRY, METHOD, RULES_ENTRY, FAMILY, TINY, TESTS, PARITY)

_BLOCK = re.compile(r"^_(.+?):_\n```python\n(.*?)```", re.DOTALL | re.MULTILINE)


def code_blocks(page: Path) -> dict[str, str]:
    """Where each block of the page belongs -> its code."""
    return dict(_BLOCK.findall(page.read_text("utf-8")))


def apply_page(page: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    """Octavo with the page's family until `patch` is undone; the names of its two test files."""
    code = code_blocks(page)
    for place, module in ((SEMANTICS, semantics), (OPS, ops)):
        for name, value in _defined(code[place], module).items():
            if hasattr(module, name):
                raise ValueError(f"{place}: {name} is there already; the page needs another one")
            patch.setattr(module, name, value, raising=False)
    table = MappingProxyType({**ops.OPS, **_entry(code[OPS_ENTRY], ops)})
    for module in (ops, graph, reference):
        patch.setattr(module, "OPS", table)
    for name, method in _defined(code[METHOD], graph).items():
        patch.setattr(graph.Graph, name, method, raising=False)
    patch.setattr(names, "RULES", {**names.RULES, **_entry(code[RULES_ENTRY], names)})
    patch.setattr(registry, "_FAMILIES", list(registry.families()))
    _load("octavo.models.arcee", code[FAMILY], patch)
    _load("octavo.testing.tiny_arcee", code[TINY], patch)
    return _load("octavo_page_tests", code[TESTS] + code[PARITY], patch)


def page_tests(module: ModuleType) -> dict[str, Callable[..., None]]:
    """Its test functions by name."""
    found = vars(module).items()
    return {n: f for n, f in found if n.startswith("test_") and inspect.isfunction(f)}


def run_test(function: Callable[..., None], **fixtures: Any) -> int:
    """Call a test with each of its parameter sets; how many there were."""
    marks = getattr(function, "pytestmark", ())
    given = [mark.args for mark in marks if mark.name == "parametrize"]
    keys, sets = given[0] if given else ((), [()])
    for values in sets:
        function(**fixtures, **dict(zip(keys, values, strict=True)))
    return len(sets)


def _defined(code: str, module: ModuleType) -> dict[str, Any]:
    """What the code defines where it can see the names of the module."""
    found: dict[str, Any] = {}
    exec(code, vars(module), found)
    return found


def _entry(code: str, module: ModuleType) -> dict[str, Any]:
    """A line of a table: `"key": value,`."""
    entry: dict[str, Any] = eval(f"{{{code}}}", vars(module))
    return entry


def _load(name: str, code: str, patch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(name)
    patch.setitem(sys.modules, name, module)
    exec(compile(code, f"<{name}>", "exec"), vars(module))
    return module
