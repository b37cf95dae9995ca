"""The native backend in the engine: the same answers in any company, by equality.

Arrivals, aborts, chunks, prefix hits, preemption, block sizes, sampling, threads.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.backends.native import NativeBackend
from octavo.models.registry import build
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint

VOCAB = 200
MODELS = [("F32", 1, "float32"), ("Q4_0", 2, "auto"), ("Q8_0", 2, "bfloat16")]

requests = st.fixed_dictionaries(
    {
        "shared": st.sampled_from([0, 5, 17]),
        "tail": st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20),
        "max_tokens": st.integers(1, 10),
        "temperature": st.sampled_from([0.0, 0.8]),
        "top_p": st.sampled_from([1.0, 0.9]),
        "repetition_penalty": st.sampled_from([1.0, 1.2]),
        "arrives": st.integers(0, 6),
        "aborted_after": st.none() | st.integers(0, 6),
    }
)
SAMPLING = ("max_tokens", "temperature", "top_p", "repetition_penalty")


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: "-".join(map(str, model)))
def backend(request: Any, tmp_path_factory: pytest.TempPathFactory) -> NativeBackend:
    weight_type, threads, kv_dtype = request.param
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    shape = {"hidden": 96, "heads": 6, "kv_heads": 2, "layers": 2, "intermediate": 96}
    tiny_llama(path, format="gguf", weight_type=weight_type, tie=True, **shape)
    with open_checkpoint(path) as checkpoint:
        return NativeBackend(
            build(checkpoint).program,
            checkpoint,
            vocab_size=VOCAB,
            threads=threads,
            kv_dtype=kv_dtype,
        )


def submit(driver: Any, name: str, seed: int, r: dict[str, Any]) -> None:
    prompt = list(range(10, 10 + r["shared"])) + r["tail"]
    driver.submit(name, prompt, seed, logprobs=3, **{key: r[key] for key in SAMPLING})


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    backend: NativeBackend,
    several: list[dict[str, Any]],
    block_size: int,
    budget: int,
    spare_blocks: int,
    prefix_caching: bool,
) -> None:
    expected = []
    for seed, r in enumerate(several):
        alone = drive(backend, prefix_caching=False)
        submit(alone, "x", seed, r)
        alone.run()
        expected.append(alone.answers["x"])

    company = drive(
        backend,
        block_size=block_size,
        num_blocks=-(-64 // block_size) + spare_blocks,  # small pools: much preemption
        max_num_batched_tokens=budget,
        max_num_seqs=2 + budget % 3 if budget > 4 else 2,
        prefix_caching=prefix_caching,
    )
    for step in range(14):
        for seed, r in enumerate(several):
            if r["arrives"] == step:
                submit(company, str(seed), seed, r)
            elif r["aborted_after"] is not None and step == r["arrives"] + r["aborted_after"]:
                company.abort(str(seed))
        if company.core.has_work:
            company.step()
    company.run()
    assert not company.errors
    for seed, whole in enumerate(expected):
        got = company.answers[str(seed)]
        if got.finish_reason != "abort":
            assert got.token_ids == whole.token_ids
        count = len(got.token_ids)
        assert got.token_ids == whole.token_ids[:count]
        assert (got.logprobs or []) == (whole.logprobs or [])[:count]
