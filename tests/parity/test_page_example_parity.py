"""The parity test that docs/adding-a-model.md shows, run as it stands there."""

from pathlib import Path

import pytest

from octavo.testing.page_example import apply_page, page_tests, run_test

pytestmark = pytest.mark.parity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-model.md"


def test_the_example_agrees_with_transformers(oracle, tmp_path, monkeypatch):
    example = apply_page(PAGE, monkeypatch)
    run_test(page_tests(example)["test_log_probabilities"], oracle=oracle, tmp_path=tmp_path)
