"""The native backend in the engine: the same answers in any company, by equality.

Arrivals, aborts, chunks, prefix hits, preemption, block sizes, sampling, threads, instruction sets,
contexts over several partitions of attention. `test_native_smollm2.py` is the same at full size.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo._native import cpu_features
from octavo.backends.native import NativeBackend
from octavo.backends.native_program import WEIGHT_TYPES
from octavo.models.registry import build
from octavo.testing.companies import engine_sizes, visits
from octavo.testing.company import Visit, alone, crowd, tight_pool, together
from octavo.testing.tiny import tiny_llama
from octavo.testing.tiny_gemma import tiny_gemma
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import TensorType

VOCAB = 200  # fewer than the model's, as with models whose embeddings have more rows than tokens
KV_DTYPES = ("float16", "float32", "bfloat16")
LONGEST = 600  # three partitions
TEXTS = np.random.default_rng(3).integers(0, VOCAB, (2, LONGEST)).tolist()

Make = Callable[..., NativeBackend]

OFTEN = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0")
LONG_TOO = ("Q5_K", "Q6_K", "IQ4_XS")  # a kernel of each kind, beside those


def pairs(quick: Callable[[str, str], bool]) -> list[Any]:
    """Weight type, cache type: all, of which those that are not quick are marked slow."""
    return [
        pytest.param(kind, kv_dtype, marks=[] if quick(kind, kv_dtype) else [pytest.mark.slow])
        for kind, kv_dtype in product(WEIGHT_TYPES, KV_DTYPES)
    ]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes backends of tiny models: make("Q4_0", threads=..., kv_dtype=..., isa=...)."""
    folder = tmp_path_factory.mktemp("tiny")

    @cache
    def file(kind: str) -> Path:
        shape = {"hidden": 96, "heads": 6, "kv_heads": 2, "layers": 2, "intermediate": 96}
        if TensorType[kind].block_size == 256:
            shape |= {"hidden": 256, "heads": 8, "intermediate": 256}
        path = folder / f"{kind}.gguf"
        return tiny_llama(path, format="gguf", weight_type=kind, tie=True, **shape)

    def backend(kind: str, **how: Any) -> NativeBackend:
        with open_checkpoint(file(kind)) as checkpoint:
            assert {t.type.value for t in checkpoint.tensors.values() if len(t.shape) > 1} == {kind}
            program = build(checkpoint).program
            return NativeBackend(program, checkpoint, vocab_size=VOCAB, **how)

    return backend


@pytest.fixture(scope="module")
def by_threads(make: Make) -> Callable[[str, str], dict[int, NativeBackend]]:
    @cache
    def backends(kind: str, kv_dtype: str) -> dict[int, NativeBackend]:
        return {threads: make(kind, threads=threads, kv_dtype=kv_dtype) for threads in (1, 2)}

    return backends


@pytest.mark.parametrize(
    ("kind", "kv_dtype"), pairs(lambda kind, kv_dtype: kind in OFTEN or kv_dtype == "float16")
)
@settings(max_examples=8, deadline=None)
@given(several=visits(VOCAB, most=5), sizes=engine_sizes(), threads=st.sampled_from([1, 2]))
def test_alone_and_in_company(
    by_threads: Callable[[str, str], dict[int, NativeBackend]],
    kind: str,
    kv_dtype: str,
    several: list[Visit],
    sizes: dict[str, Any],
    threads: int,
) -> None:
    backends = by_threads(kind, kv_dtype)
    company = together(backends[threads], several, **sizes)
    for whole, got in zip(alone(backends[1], several), company.answers, strict=True):
        assert got == whole.as_far_as(got)


# Threads, is there a pool for all, and the engine.
WAYS: list[tuple[int, bool, dict[str, Any]]] = [
    (1, False, {"block_size": 16, "max_num_batched_tokens": 300}),
    (2, False, {"block_size": 7, "prefix_caching": False}),
    (2, True, {"block_size": 4, "max_num_batched_tokens": 37}),
]
ROOM = {"max_model_len": 800, "num_blocks": 800, "max_num_batched_tokens": 800}


def people(seed: int) -> list[Visit]:
    return crowd(seed, TEXTS, size=8, vocab_size=VOCAB, longest=LONGEST)


@pytest.mark.parametrize(
    ("kind", "kv_dtype"),
    pairs(lambda kind, dtype: kind in OFTEN or (kind in LONG_TOO and dtype == "float16")),
)
def test_long_contexts(make: Make, kind: str, kv_dtype: str) -> None:
    every_way_agrees(
        lambda threads: make(kind, threads=threads, kv_dtype=kv_dtype), KV_DTYPES.index(kv_dtype)
    )


def test_long_contexts_with_windows_in_some_layers(tmp_path: Path) -> None:
    """Gemma's, which also has norms by head; the window spans partitions."""
    shape = {"hidden": 96, "heads": 4, "kv_heads": 2, "window": 270}
    path = tiny_gemma(tmp_path / "gemma.gguf", format="gguf", weight_type="Q8_0", **shape)
    with open_checkpoint(path) as checkpoint:
        program = build(checkpoint).program
        every_way_agrees(
            lambda threads: NativeBackend(program, checkpoint, vocab_size=VOCAB, threads=threads), 5
        )


def every_way_agrees(backend_of: Callable[[int], NativeBackend], seed: int) -> None:
    """Every way gives what one thread gives alone in one chunk: so they are equal to each other."""
    visitors = people(seed)
    expected = alone(backend_of(1), visitors, **ROOM)
    for threads, roomy, sizes in WAYS:
        pool = {} if roomy else {"num_blocks": tight_pool(visitors, sizes["block_size"])}
        backend = backend_of(threads)
        company = together(backend, visitors, **(ROOM | sizes | pool))
        for whole, got in zip(expected, company.answers, strict=True):
            assert got == whole.as_far_as(got), (threads, sizes)
        # Else the comparison would say little.
        assert roomy or company.num_preemptions
        assert company.num_cached or not sizes.get("prefix_caching", True)


@pytest.mark.skipif("avx2" not in cpu_features(), reason="this CPU has no AVX2")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if k in OFTEN else [pytest.mark.slow]) for k in WEIGHT_TYPES],
)
def test_instruction_sets(make: Make, kind: str) -> None:
    first, _, _, *short = people(9)[:6]  # one long context: the scalar form takes its time
    scalar = together(make(kind, threads=2, isa="scalar"), [first, *short], **ROOM)
    expected = alone(make(kind, threads=1, isa="avx2"), [first, *short], **ROOM)
    for whole, got in zip(expected, scalar.answers, strict=True):
        assert got == whole.as_far_as(got)
