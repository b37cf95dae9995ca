"""Imports point one way, importing is cheap, and files say what they are for."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "octavo"
SOURCES = sorted(ROOT.rglob("*.py"))

# An import may only point to a later line; members of one line do not import each other.
ORDER = (
    {"testing"},
    {"cli"},
    {"api"},
    {"serving"},
    {"speech", "video"},
    {"text", "media", "engine"},
    {"grammar"},
    {"models", "backends"},
    {"graph", "weights"},
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
COMMON = {"config", "errors", "types", "log", "metrics"}
COMMON_MAY_IMPORT = {"errors", "types"}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, room) of each import of ours, function-level ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            base = node.module or ""
            names = [f"octavo.{a.name}" for a in node.names] if base == "octavo" else [base]
        for name in names:
            parts = name.split(".")
            if parts[0] == "octavo" and len(parts) > 1 and not parts[1].startswith("_"):
                yield node.lineno, parts[1]


def allowed(source: str, target: str) -> bool:
    if source == target or source == "__init__":
        return True
    if source in COMMON:
        return target in COMMON_MAY_IMPORT
    if target in COMMON:
        return True
    return target in LEVEL and LEVEL[source] < LEVEL[target]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_right(path: Path) -> None:
    room = room_of(path)
    assert room in LEVEL or room in COMMON or room == "__init__", f"{room} has no place in ORDER"
    wrong = [f"line {n}: {room} → {t}" for n, t in imports(path) if not allowed(room, t)]
    assert not wrong


def test_the_rule_itself() -> None:
    assert allowed("serving", "engine")
    assert not allowed("engine", "serving")
    assert not allowed("text", "engine")
    assert not allowed("metrics", "engine")
    assert allowed("models", "graph")
    assert not allowed("models", "backends")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_opens_with_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_import_octavo_loads_nothing_heavy() -> None:
    script = "import sys, octavo; print(*(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pydantic", "starlette", "tokenizers", "jinja2", "uvicorn", "rich", "torch"}
    heavy |= {"huggingface_hub"}
    assert not heavy & set(out.stdout.split())


def test_types_are_published() -> None:
    """Type checkers read the package's annotations only if this file is in it (PEP 561)."""
    assert (ROOT / "py.typed").is_file()
