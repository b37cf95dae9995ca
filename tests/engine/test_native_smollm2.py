"""SmolLM2-135M itself on the native backend: the same answers in any company, by equality.

Its weights in every type that has kernels, contexts over three partitions of attention, small pools
and budgets, prefix hits, preemption, aborts, one thread and two.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.backends.native import NativeBackend
from octavo.backends.native_program import WEIGHT_TYPES
from octavo.models.registry import build
from octavo.testing.company import alone, crowd, tight_pool, together
from octavo.testing.in_type import write_in_type
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.resolve import resolve_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VOCAB = 49152
LONGEST = 700
LICENSE = Path(__file__).resolve().parents[2] / "LICENSE"
ROOM = {"max_model_len": 800, "num_blocks": 256, "block_size": 16, "max_num_batched_tokens": 800}

TIGHT: dict[str, Any] = {"block_size": 16, "max_num_batched_tokens": 300, "max_num_seqs": 5}
TINY_CHUNKS: dict[str, Any] = {"block_size": 8, "max_num_batched_tokens": 45}
UNCACHED: dict[str, Any] = {"block_size": 12, "prefix_caching": False}

# Weight type, cache type, visits, threads when they are together, and the engine they meet in; each
# alone has one thread. The published file is Q4_1 with its embedding in Q8_0.
CASES = [
    ("published", "float16", 16, 1, TIGHT),
    ("F32", "float32", 6, 2, TINY_CHUNKS),
    ("F16", "float16", 7, 2, UNCACHED),
    ("BF16", "bfloat16", 8, 2, TIGHT),
    ("Q4_0", "float32", 12, 2, TIGHT),
    ("Q4_1", "float32", 8, 2, UNCACHED),
    ("Q8_0", "float16", 10, 2, TINY_CHUNKS),
    ("Q5_0", "float16", 6, 2, TIGHT),
    ("Q5_1", "float32", 6, 2, TINY_CHUNKS),
    ("IQ4_NL", "bfloat16", 6, 2, UNCACHED),
    ("MXFP4", "float16", 6, 2, TIGHT),
    # Widened to rows of 768.
    ("Q2_K", "float16", 6, 2, TINY_CHUNKS),
    ("Q3_K", "float32", 6, 2, TIGHT),
    ("Q4_K", "float16", 6, 2, UNCACHED),
    ("Q5_K", "bfloat16", 6, 2, TIGHT),
    ("Q6_K", "float16", 6, 2, TINY_CHUNKS),
    ("IQ4_XS", "float32", 6, 2, TIGHT),
]


@pytest.fixture(scope="module")
def published() -> Path:
    return resolve_model("smollm2", progress=False)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Removed at the end, unlike pytest's: the files have a gigabyte."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture(scope="module")
def texts(published: Path) -> list[list[int]]:
    """What prompts begin with: English, and random ids."""
    with open_checkpoint(published) as checkpoint:
        tokenizer = tokenizer_from_gguf(checkpoint.metadata, published.name)
    english = tokenizer.encode(LICENSE.read_text(encoding="utf-8"))
    return [english[:LONGEST], np.random.default_rng(5).integers(0, VOCAB, LONGEST).tolist()]


@pytest.fixture(scope="module")
def files(published: Path, folder: Path) -> Callable[[str], Path]:
    """The model in a weight type; each file is written once."""

    @cache
    def file(weight_type: str) -> Path:
        if weight_type == "published":
            return published
        path = folder / f"{weight_type}.gguf"
        write_in_type(published, path, weight_type)
        return path

    return file


def test_every_type_has_its_case() -> None:
    assert {case[0] for case in CASES} == {"published", *WEIGHT_TYPES}


@pytest.mark.parametrize(
    ("weight_type", "kv_dtype", "size", "threads", "engine"),
    CASES,
    ids=[f"{case[0]}-{case[1]}" for case in CASES],
)
def test_alone_and_in_company(
    files: Callable[[str], Path],
    texts: list[list[int]],
    weight_type: str,
    kv_dtype: str,
    size: int,
    threads: int,
    engine: dict[str, Any],
) -> None:
    def backend(threads: int) -> NativeBackend:
        with open_checkpoint(files(weight_type)) as checkpoint:
            program = build(checkpoint).program
            return NativeBackend(
                program, checkpoint, vocab_size=VOCAB, kv_dtype=kv_dtype, threads=threads
            )

    visits = crowd(size, texts, size=size, vocab_size=VOCAB, longest=LONGEST)
    expected = alone(backend(1), visits, **ROOM)
    pool = {"num_blocks": tight_pool(visits, engine["block_size"])}
    company = together(backend(threads), visits, **(ROOM | engine | pool))
    for whole, got in zip(expected, company.answers, strict=True):
        assert got == whole.as_far_as(got)
    # Else the comparison would say little.
    assert company.num_preemptions
    assert company.num_cached or not engine.get("prefix_caching", True)
