"""docs/api.md has what it says it has: every field, every status, every route."""

import re
from pathlib import Path

import pytest

from octavo.api.app import text_paths
from octavo.api.schemas.chat import ChatBody
from octavo.api.schemas.completions import CompletionBody
from octavo.api.schemas.utility import DetokenizeBody, TokenizeChat, TokenizeText
from octavo.config import parse_args
from octavo.errors import RequestError

WRITTEN = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text("utf-8")
NAMED = set(re.findall(r"`(\w+)`", WRITTEN))


@pytest.mark.parametrize(
    "body", [ChatBody, CompletionBody, TokenizeChat, TokenizeText, DetokenizeBody]
)
def test_every_field_is_named(body):
    assert not sorted(set(body.model_fields) - NAMED)


def test_every_status_is_named():
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    assert not [
        s for s in {kind.status for kind in below(RequestError)} if f"| {s} |" not in WRITTEN
    ]


def test_every_route_is_named():
    every = ["x", "--enable-tokenizer-info-endpoint", "--enable-server-dev-mode"]
    for path in text_paths(parse_args(every, environ={})):
        for method in path.methods:
            name = path.path.replace("{model:path}", "{id}")
            assert re.search(rf"{method}[A-Z ,and]* `{re.escape(name)}`", WRITTEN), (method, name)
