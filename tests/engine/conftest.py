"""An engine core that tests step by hand."""

from collections.abc import Callable

import pytest

from octavo.testing.engine_driver import EngineDriver


@pytest.fixture
def drive() -> Callable[..., EngineDriver]:
    """Makes drivers: drive(backend, **sizes)."""
    return EngineDriver
