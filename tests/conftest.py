"""What holds for all tests, and what several rooms need: a hub, and logging as it was."""

import logging

import pytest
from hypothesis import settings

# No test is timed: a machine that is busy with something else would fail it.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")


@pytest.fixture
def restored_logging():
    """For commands that are run in this process: they set logging up for all of it."""
    root, ours = logging.getLogger(), logging.getLogger("octavo")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


@pytest.fixture
def hub_home(tmp_path, monkeypatch):
    """An empty HF_HOME in this process. huggingface_hub reads its variables when it is imported."""
    from huggingface_hub import constants

    folder = tmp_path / "hf"
    monkeypatch.setattr(constants, "HF_HOME", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def hub(hub_home, monkeypatch):
    """A stand-in hub without models, which this process takes for the hub."""
    from huggingface_hub import constants

    from octavo.testing.hub import fake_hub

    with fake_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub
