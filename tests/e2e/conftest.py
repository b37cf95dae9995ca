"""Servers that several end-to-end tests talk to: the quick-start model as `octavo serve` has it."""

import openai
import pytest

from octavo.testing.server import running_server


@pytest.fixture(scope="session")
def smollm2():
    """`octavo serve`, no model named; its first start fetches the model."""
    with running_server(timeout_s=600) as server:
        yield server


@pytest.fixture(scope="session")
def client(smollm2):
    """The official Python client on the quick-start model. One try only: an error is an error."""
    with openai.OpenAI(
        base_url=f"{smollm2.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:
        yield client
