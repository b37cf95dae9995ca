"""A real model in the engine: the same tokens in any company, log-probabilities within 1e-4.

The reference backend computes each row alone, so that its numbers do not depend on its company; but
NumPy does not promise that a product always adds in the same order (it may depend on where arrays
lie in memory). So the numbers are compared by tolerance, and the tokens greedily: a draw may fall
the other way at any boundary, however small the difference.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.backends.reference import ReferenceBackend
from octavo.engine.stream import TokenDelta
from octavo.models.registry import build
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint

TOLERANCE = 1e-4
VOCAB = 200

requests = st.fixed_dictionaries(
    {
        "shared": st.sampled_from([0, 5, 17]),
        "tail": st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20),
        "max_tokens": st.integers(1, 10),
        "arrives": st.integers(0, 6),
        "aborted_after": st.none() | st.integers(0, 6),
    }
)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceBackend]:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    tiny_llama(path, format="gguf", hidden=72, heads=9, kv_heads=3, layers=2, tie=True)
    checkpoint = open_checkpoint(path)
    yield ReferenceBackend(build(checkpoint).program, checkpoint, vocab_size=VOCAB)
    checkpoint.close()


def assert_same(got: TokenDelta, expected: TokenDelta) -> None:
    """Equal up to the first near tie between the chosen token and the runner-up."""
    assert got.logprobs is not None
    assert expected.logprobs is not None
    if got.finish_reason != "abort":
        assert len(got.token_ids) == len(expected.token_ids)
    for ours, theirs in zip(got.logprobs, expected.logprobs, strict=False):
        if ours.chosen.token_id != theirs.chosen.token_id:
            first, second = theirs.top[:2]
            assert first.logprob - second.logprob < 2 * TOLERANCE, "another token, and no near tie"
            return
        assert ours.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=TOLERANCE)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    several=st.lists(requests, min_size=1, max_size=5),
    block_size=st.sampled_from([1, 4, 16]),
    budget=st.integers(2, 30),
    spare_blocks=st.integers(0, 10),
    prefix_caching=st.booleans(),
)
def test_alone_and_in_company(
    drive: Callable[..., Any],
    backend: ReferenceBackend,
    several: list[dict[str, Any]],
    block_size: int,
    budget: int,
    spare_blocks: int,
    prefix_caching: bool,
) -> None:
    def submit(driver: Any, name: str, index: int) -> None:
        r = several[index]
        prompt = list(range(10, 10 + r["shared"])) + r["tail"]
        driver.submit(name, prompt, logprobs=2, max_tokens=r["max_tokens"])

    expected = []
    for index in range(len(several)):
        alone = drive(backend, prefix_caching=False)
        submit(alone, "x", index)
        alone.run()
        expected.append(alone.answers["x"])

    company = drive(
        backend,
        block_size=block_size,
        num_blocks=-(-64 // block_size) + spare_blocks,
        max_num_batched_tokens=budget,
        max_num_seqs=2 + budget % 3 if budget > 4 else 2,
        prefix_caching=prefix_caching,
    )
    for step in range(14):
        for index, r in enumerate(several):
            if r["arrives"] == step:
                submit(company, str(index), index)
            elif r["aborted_after"] is not None and step == r["arrives"] + r["aborted_after"]:
                company.abort(str(index))
        if company.core.has_work:
            company.step()
    company.run()
    assert not company.errors
    for index, alone_answer in enumerate(expected):
        got = company.answers[str(index)]
        if got.token_ids:
            assert_same(got, alone_answer)
