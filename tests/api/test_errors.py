"""Exceptions and schema errors as sentences: what a stranger may read, and what is a 500."""

import logging

import pytest
from pydantic import ValidationError

from octavo.api.errors import as_request_error, schema_error
from octavo.api.schemas.chat import ChatBody
from octavo.errors import ConfigError, InvalidRequest, RequestError

TOOL = {"type": "function", "function": {"name": "f"}}


def test_errors_of_the_server_are_not_the_clients(caplog):
    with caplog.at_level(logging.ERROR, "octavo"):
        shown = as_request_error(ConfigError("model.gguf: tensor blk.0 is missing"))
    assert shown.status == 500
    assert "tensor" not in str(shown), "strangers are not told"
    assert "tensor" in caplog.text, "the log is"


def test_errors_of_a_request_pass_as_they_are():
    error = InvalidRequest("no", param="x")
    assert as_request_error(error) is error


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"messages": []}, "messages: must have at least 1 item (given: [])"),
        ({"cache_salt": ""}, 'cache_salt: must have at least 1 character (given: "")'),
        ({"cache_salt": "x" * 1025}, "cache_salt: must have at most 1024 characters"),
        ({"tools": [TOOL] * 513}, "tools: must have at most 512 items"),
    ],
)
def test_lengths_in_plain_words(given, sentence):
    body = {"messages": [{"role": "user", "content": "a"}]} | given
    with pytest.raises(ValidationError) as caught:
        ChatBody.model_validate(body)
    message = str(schema_error(caught.value, body))
    assert message.startswith(sentence) or f"; {sentence}" in message
    assert "validation" not in message


def test_every_error_of_the_wire_is_in_the_tree(serve):
    async def scenario(client):
        reply = await client.send("DELETE", "/v1/models")
        assert reply.status == 405
        assert set(reply.headers["allow"].split(", ")) == {"GET", "HEAD"}

    serve([["x"]], scenario)
    kinds = {kind.__module__ for kind in _below(RequestError)}
    assert kinds == {"octavo.errors"}


def _below(kind):
    return {kind}.union(*map(_below, kind.__subclasses__()))
