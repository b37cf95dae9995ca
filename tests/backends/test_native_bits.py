"""One request, one stream of bits: the native backend's numbers by equality, never by tolerance.

Instruction sets, chunks, neighbours, shared blocks, block sizes, threads, contexts over several
partitions of attention (256 positions each), cache types, weight types.
"""

import json
from itertools import product

import numpy as np
import pytest

from octavo import _native
from octavo.backends.base import RowSampling
from octavo.backends.native import NativeBackend
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.tiny import tiny_llama
from octavo.testing.tiny_gemma import tiny_gemma
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import TensorType

WEIGHT_TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0")
MORE_TYPES = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4")
LONG = np.random.default_rng(11).integers(0, 256, 700).tolist()  # three partitions
SHORT = LONG[:50]

needs_avx2 = pytest.mark.skipif("avx2" not in _native.cpu_features(), reason="this CPU has no AVX2")


class Models:
    """Makes backends of tiny models; each file is written once."""

    def __init__(self, folder):
        self._folder = folder
        self._open = {}

    def backend(self, weight_type="Q4_0", *, window=0, threads=1, kv_dtype="auto", isa=None):
        key = (weight_type, window)
        if key not in self._open:
            path = self._folder / f"{weight_type}-{window}"
            shape = {"hidden": 96, "heads": 6, "layers": 2, "intermediate": 160}
            if TensorType[weight_type].block_size == 256:
                shape |= {"hidden": 256, "heads": 8, "intermediate": 512}
            if window:
                tiny_llama(path, weight_type=weight_type, **shape)
                file = path / "config.json"
                more = {"model_type": "mistral", "sliding_window": window}
                file.write_text(json.dumps(json.loads(file.read_text()) | more))
            else:
                tiny_llama(path, format="gguf", weight_type=weight_type, **shape)
            checkpoint = open_checkpoint(path)
            self._open[key] = (build(checkpoint), checkpoint)
        model, checkpoint = self._open[key]
        return NativeBackend(
            model.program,
            checkpoint,
            vocab_size=model.config.vocab_size,
            threads=threads,
            kv_dtype=kv_dtype,
            isa=isa,
        )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """Makes backends of a tiny Gemma, whose odd heads no vector register holds evenly."""
    path = tmp_path_factory.mktemp("gemma") / "model.gguf"
    tiny_gemma(path, format="gguf", hidden=96, heads=3, kv_heads=1, head_dim=36, window=300)
    checkpoint = open_checkpoint(path)
    model = build(checkpoint)

    def backend(**how):
        rows = model.config.vocab_size
        return NativeBackend(model.program, checkpoint, vocab_size=rows, **how)

    return backend


def scores(backend, tokens, chunks, *, block_size=4, num_blocks=220):
    return Driver(backend, num_blocks=num_blocks, block_size=block_size).scores(tokens, chunks)


@needs_avx2
@pytest.mark.parametrize(
    ("weight_type", "kv_dtype"),
    [
        *product(WEIGHT_TYPES, ["float16", "bfloat16", "float32"]),
        *product(MORE_TYPES, ["float16"]),
    ],
)
def test_instruction_sets(models, weight_type, kv_dtype):
    scalar, avx2 = (
        scores(models.backend(weight_type, kv_dtype=kv_dtype, isa=isa), SHORT, [41, 9])
        for isa in ("scalar", "avx2")
    )
    assert np.array_equal(scalar, avx2)


@needs_avx2
def test_instruction_sets_over_partitions(models):
    scalar, avx2 = (
        scores(models.backend(isa=isa), LONG, [640, *[1] * 4, 56], block_size=16)
        for isa in ("scalar", "avx2")
    )
    assert np.array_equal(scalar, avx2)


@needs_avx2
@pytest.mark.parametrize(
    ("head_dim", "heads", "kv_heads"), [(2, 8, 1), (4, 4, 4), (6, 8, 8), (12, 4, 4), (14, 8, 2)]
)
def test_norms_of_heads_that_fill_no_register(tmp_path, head_dim, heads, kv_heads):
    """A row's last head ends where the next row begins."""
    shape = {"head_dim": head_dim, "heads": heads, "kv_heads": kv_heads}
    path = tiny_gemma(tmp_path / "m.gguf", format="gguf", **shape)
    with open_checkpoint(path) as checkpoint:
        model = build(checkpoint)
        rows = model.config.vocab_size
        expected, *others = (
            scores(
                NativeBackend(model.program, checkpoint, vocab_size=rows, isa=isa, threads=threads),
                SHORT,
                [50],
            )
            for isa, threads in (("scalar", 1), ("avx2", 1), ("avx2", 2))
        )
    assert all(np.array_equal(other, expected) for other in others)


@needs_avx2
def test_instruction_sets_on_gemma(gemma):
    """Norms by head, scaled embeddings, gelu."""
    scalar, avx2 = (scores(gemma(isa=isa), LONG, [640, 1, 59]) for isa in ("scalar", "avx2"))
    assert np.array_equal(scalar, avx2)


def test_chunks_of_gemma(gemma):
    """Layers with a window, which spans partitions, and layers without."""
    expected = scores(gemma(), LONG, [700])
    for threads, chunks in enumerate(([255, 1, 1, 255, 188], [3, 600, 8, 9, 80]), start=1):
        assert np.array_equal(scores(gemma(threads=threads), LONG, chunks), expected), chunks


@pytest.mark.parametrize(
    ("weight_type", "isa"),
    [*product(WEIGHT_TYPES, ["scalar", None]), *product(MORE_TYPES, [None])],
)
def test_chunks_and_threads(models, weight_type, isa):
    expected = scores(models.backend(weight_type, isa=isa), SHORT, [50])
    for chunks in ([1] * 50, [49, 1], [7, 30, 13]):
        for threads in (1, 2, 3):
            backend = models.backend(weight_type, isa=isa, threads=threads)
            assert np.array_equal(scores(backend, SHORT, chunks), expected)


@pytest.mark.parametrize("kv_dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("window", [0, 300])
def test_chunks_over_partitions(models, window, kv_dtype):
    kind = "F32" if window else "Q4_1"
    expected = scores(models.backend(kind, window=window, kv_dtype=kv_dtype), LONG, [700])
    ways = ([255, 1, 1, 255, 188], [512, *[1] * 5, 183], [3, 600, 8, 9, 80], [530, 2, 100, 68])
    for threads, chunks in enumerate(ways, start=1):
        backend = models.backend(kind, window=window, kv_dtype=kv_dtype, threads=threads)
        assert np.array_equal(scores(backend, LONG, chunks), expected), chunks


@pytest.mark.parametrize("block_size", [1, 3, 8, 12, 16, 32])
def test_block_sizes(models, block_size):
    tokens = LONG[:300]
    expected = scores(models.backend("Q8_0"), tokens, [300])
    got = scores(
        models.backend("Q8_0", threads=2),
        tokens,
        [257, 1, 42],
        block_size=block_size,
        num_blocks=-(-300 // block_size) + 1,
    )
    assert np.array_equal(got, expected)


def answer(step, index):
    """Everything a client sees of one row, as bytes."""
    row = step.logprobs[index]
    return (
        step.token_ids[index],
        np.float32(row.chosen).tobytes(),
        row.rank,
        row.top_ids.tobytes(),
        row.top_values.tobytes(),
    )


@pytest.mark.parametrize("weight_type", ["F16", "Q4_0"])
def test_neighbours(models, weight_type):
    """A sampled row among others, long and short, decoding and in prefill, at any place."""
    how = RowSampling(temperature=0.9, top_p=0.95, seed=5, position=0, num_logprobs=5)
    alone = Driver(models.backend(weight_type), num_blocks=200)
    expected = [answer(alone.step({"a": SHORT}, {"a": [how]}), 0)]
    expected += [answer(alone.step({"a": [9]}, {"a": [how]}), 0)]

    for threads in (1, 2):
        crowd = Driver(models.backend(weight_type, threads=threads), num_blocks=600)
        crowd.step({"long": LONG[:600]}, {})
        first = {"x": LONG[3:20], "long": [4], "a": SHORT, "y": LONG[9:80]}
        assert answer(crowd.step(first, {"y": [how], "a": [how], "long": [how]}), 1) == expected[0]
        second = {"a": [9], "z": LONG[:300], "long": [5], "y": [6]}
        assert answer(crowd.step(second, {"a": [how], "z": [how]}), 0) == expected[1]


def test_more_tokens_than_run_together(models):
    """A step beyond the executor's own limit of tokens, with rows wanted all over."""
    backend = models.backend("F32", threads=2)
    expected = {n: scores(backend, LONG[n:], [700 - n]) for n in (0, 100, 350)}
    driver = Driver(backend, num_blocks=500)
    every = RowSampling(num_logprobs=backend.vocab_size)
    work = {str(n): LONG[n:] for n in expected}
    step = driver.step(work, {name: [every] * len(tokens) for name, tokens in work.items()})
    rows = iter(step.logprobs)
    for whole in expected.values():
        for wanted in whole:
            row = next(rows)
            assert np.array_equal(row.top_values, wanted[row.top_ids])


def test_shared_blocks(models):
    backend = models.backend("Q4_1", threads=2)
    expected = scores(backend, LONG, [700])
    driver = Driver(backend, num_blocks=400)
    driver.step({"parent": LONG[:603]})
    had = driver.fork("parent", "scored")
    assert had == 600
    rest = driver.scores(LONG[had:], [700 - had])
    assert np.array_equal(rest, expected[had:])


def test_allocating_again_forgets(models):
    backend = models.backend()
    first = scores(backend, SHORT, [50])
    assert np.array_equal(scores(backend, SHORT, [50], block_size=8, num_blocks=9), first)
