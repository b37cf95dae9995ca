"""docs/adding-a-model.md is executed: its code is put where it says, and its tests are run."""

from pathlib import Path

import pytest

from octavo.backends.native import NativeBackend
from octavo.errors import ConfigError
from octavo.models.registry import architecture_names, build
from octavo.testing.page_example import PLACES, apply_page, code_blocks, page_tests, run_test
from octavo.weights.checkpoint import open_checkpoint

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-model.md"


@pytest.fixture
def example(monkeypatch):
    return apply_page(PAGE, monkeypatch)


def test_every_block_is_executed():
    assert PAGE.read_text("utf-8").count("```python") == len(PLACES)
    assert tuple(code_blocks(PAGE)) == PLACES


def test_the_code_is_as_wide_as_ours():
    lines = "".join(code_blocks(PAGE).values()).splitlines()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("test_both_forms_agree", 1),
        ("test_chunks_change_nothing", 1),
        ("test_what_is_not_built_is_named", 4),
    ],
)
def test_the_tests_of_the_page_pass(example, tmp_path, name, sets):
    assert run_test(page_tests(example)[name], tmp_path=tmp_path) == sets


def test_no_test_of_the_page_is_forgotten(example):
    assert len(page_tests(example)) == 4, "three above, one in tests/parity"


def test_the_native_backend_refuses_the_operation_as_the_page_says(example, tmp_path):
    message = "the native backend has no kernel for the operation relu_squared"
    assert message in " ".join(PAGE.read_text("utf-8").split())
    with open_checkpoint(example.tiny_folder(tmp_path / "tiny")) as checkpoint:
        model = build(checkpoint)
        with pytest.raises(ConfigError, match=message):
            NativeBackend(model.program, checkpoint, vocab_size=4)


def test_nothing_of_the_page_stays(monkeypatch):
    with monkeypatch.context() as patch:
        apply_page(PAGE, patch)
        assert "arcee" in architecture_names()
    assert "arcee" not in architecture_names()
