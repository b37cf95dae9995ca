"""Hypothesis strategies: small companies of requests, and the engines that they meet in."""

from typing import Any

from hypothesis import strategies as st

from octavo.testing.company import Visit

MOST_TOKENS = 64
"""Of a prompt and its answer."""


def visits(
    vocab_size: int, *, greedy: bool = False, most: int = 7
) -> st.SearchStrategy[list[Visit]]:
    """1 to `most` visits, some of which begin alike. greedy: nobody draws."""
    begins = [list(range(10, 10 + length)) for length in (0, 4, 5, 8, 17)]
    tails = st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=24)
    return st.lists(
        st.builds(
            Visit,
            prompt=st.builds(lambda begin, tail: begin + tail, st.sampled_from(begins), tails),
            seed=st.integers(0, 2**64 - 1),
            params=_params(greedy),
            arrives=st.integers(0, 10),
            aborted_after=st.none() | st.integers(0, 8),
        ),
        min_size=1,
        max_size=most,
    )


def _params(greedy: bool) -> st.SearchStrategy[dict[str, Any]]:
    fixed = {
        "max_tokens": st.integers(1, 12),
        "logprobs": st.just(3),
        "prompt_logprobs": st.sampled_from([None] * 7 + [2]),
    }
    drawn = {
        "temperature": st.sampled_from([0.0, 0.8, 1.0]),
        "top_p": st.sampled_from([1.0, 0.9]),
        "repetition_penalty": st.sampled_from([1.0, 1.2]),
    }
    return st.fixed_dictionaries(fixed if greedy else fixed | drawn)


@st.composite
def engine_sizes(draw: st.DrawFn) -> dict[str, Any]:
    """Of `EngineSettings`, with room for MOST_TOKENS: small pools, so that there is preemption."""
    block_size = draw(st.sampled_from([1, 4, 7, 16]))
    max_num_seqs = draw(st.integers(1, 5))
    return {
        "max_model_len": MOST_TOKENS,
        "block_size": block_size,
        "num_blocks": -(-MOST_TOKENS // block_size) + draw(st.integers(0, 12)),
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max(draw(st.integers(1, 40)), max_num_seqs),
        "prefix_caching": draw(st.booleans()),
    }
