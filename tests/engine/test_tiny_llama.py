"""A real model in the engine: the same tokens in any company, log-probabilities within 1e-4.

The reference backend computes each row alone, so that its numbers do not depend on its company; but
NumPy does not promise that a product always adds in the same order (it may depend on where arrays
lie in memory). So the numbers are compared by tolerance, and the tokens greedily: a draw may fall
the other way at any boundary, however small the difference.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from octavo.backends.reference import ReferenceBackend
from octavo.models.registry import build
from octavo.testing.companies import engine_sizes, visits
from octavo.testing.company import Answer, Visit, alone, together
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint

TOLERANCE = 1e-4
VOCAB = 200


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceBackend]:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    tiny_llama(path, format="gguf", hidden=72, heads=9, kv_heads=3, layers=2, tie=True)
    checkpoint = open_checkpoint(path)
    yield ReferenceBackend(build(checkpoint).program, checkpoint, vocab_size=VOCAB)
    checkpoint.close()


def assert_same(got: Answer, expected: Answer) -> None:
    """Equal up to the first near tie between the chosen token and the runner-up."""
    assert got.finish_reason == expected.finish_reason
    assert len(got.token_ids) == len(expected.token_ids)
    for ours, theirs in zip(got.prompt_logprobs or [], expected.prompt_logprobs or [], strict=True):
        if ours is None or theirs is None:
            assert ours is theirs
        else:
            assert ours.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=TOLERANCE)
    for ours, theirs in zip(got.logprobs, expected.logprobs, strict=True):
        if ours.chosen.token_id != theirs.chosen.token_id:
            first, second = theirs.top[:2]
            assert first.logprob - second.logprob < 2 * TOLERANCE, "another token, and no near tie"
            return
        assert ours.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=TOLERANCE)


@settings(max_examples=25, deadline=None)
@given(several=visits(VOCAB, greedy=True, most=5), sizes=engine_sizes())
def test_alone_and_in_company(
    backend: ReferenceBackend, several: list[Visit], sizes: dict[str, Any]
) -> None:
    for whole, got in zip(
        alone(backend, several), together(backend, several, **sizes).answers, strict=True
    ):
        assert_same(got, whole.as_far_as(got))
