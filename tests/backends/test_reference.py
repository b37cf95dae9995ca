"""The reference backend: whatever the chunks, the batch and the blocks, the same numbers."""

from itertools import pairwise

import numpy as np
import pytest

from octavo.backends.base import RowSampling
from octavo.backends.reference import ReferenceBackend
from octavo.errors import ConfigError, ModelFileError
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint

TOKENS = np.random.default_rng(5).integers(0, 256, 41).tolist()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(program, decoded weights): 9 query heads, 3 of keys and values, odd sizes."""
    path = tmp_path_factory.mktemp("tiny") / "model"
    tiny_llama(path, hidden=54, heads=9, kv_heads=3, layers=2, intermediate=77, vocab=301)
    with open_checkpoint(path) as checkpoint:
        program = build(checkpoint).program
        return program, {
            name: checkpoint.tensors[name].float32().copy() for name in program.weights
        }


def backend(model, vocab_size=301, **fields):
    program, weights = model
    return ReferenceBackend(program, weights, vocab_size=vocab_size, **fields)


@pytest.mark.parametrize("chunks", [[1] * 41, [40, 1], [7, 30, 4], [3] * 13 + [2]])
@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_chunks_change_nothing(model, chunks, block_size):
    whole = Driver(backend(model)).scores(TOKENS, [41])
    driver = Driver(backend(model), num_blocks=60, block_size=block_size)
    assert np.array_equal(driver.scores(TOKENS, chunks), whole)


def test_neighbours_change_nothing(model):
    alone = Driver(backend(model)).generate({"a": TOKENS}, 12)["a"]
    prompts = {f"n{i}": TOKENS[i : 2 * i + 3] for i in range(5)} | {"a": TOKENS}
    crowd = Driver(backend(model), num_blocks=200).generate(prompts, 12)
    assert crowd["a"] == alone
    assert len({tuple(tokens) for tokens in crowd.values()}) > 3, "the prompts do not matter"


def test_shared_blocks_change_nothing(model):
    whole = Driver(backend(model)).scores(TOKENS, [41])
    driver = Driver(backend(model))
    driver.step({"parent": TOKENS[:30]})
    had = driver.fork("parent", "scored")
    assert had == 28, "seven full blocks of four"
    rest = driver.scores(TOKENS[had:], [41 - had])
    assert np.array_equal(rest, whole[had:])


@pytest.mark.parametrize(("kv_dtype", "tolerance"), [("float16", 0.03), ("bfloat16", 0.3)])
def test_narrow_caches_are_near(model, kv_dtype, tolerance):
    exact = Driver(backend(model)).scores(TOKENS, [20, 21])
    narrow = Driver(backend(model, kv_dtype=kv_dtype)).scores(TOKENS, [20, 21])
    assert 0 < np.abs(narrow - exact).max() < tolerance


def test_a_group_tells_the_bytes_of_a_token(model):
    sizes = {"auto": 4, "float32": 4, "float16": 2, "bfloat16": 2}
    for kv_dtype, itemsize in sizes.items():
        (group,) = backend(model, kv_dtype=kv_dtype).cache_groups
        assert group.layers == (0, 1)
        assert group.bytes_per_token == 2 * 2 * 3 * 6 * itemsize


def test_rows_without_a_token_are_never_looked_at(model):
    program, weights = model
    head = weights["lm_head.weight"].copy()
    head[290:] *= 1000
    narrow = ReferenceBackend(program, weights | {"lm_head.weight": head}, vocab_size=290)
    expected = backend(model, vocab_size=290)
    rows = {"s": [RowSampling(num_logprobs=290)]}
    got, want = (Driver(b).step({"s": TOKENS}, rows) for b in (narrow, expected))
    assert got.logprobs[0].top_ids.tolist() == want.logprobs[0].top_ids.tolist()
    assert np.array_equal(got.logprobs[0].top_values, want.logprobs[0].top_values)
    assert max(got.logprobs[0].top_ids) < 290


def test_only_wanted_rows_are_put_out(model):
    out = Driver(backend(model)).step({"a": TOKENS, "b": TOKENS}, {"b": [RowSampling()] * 3})
    assert out.token_ids.shape == (3,)
    nothing = Driver(backend(model)).step({"a": TOKENS}, {})
    assert nothing.token_ids.shape == (0,)
    assert nothing.logprobs == ()


def test_allocating_again_forgets(model):
    driver = Driver(backend(model))
    first = driver.scores(TOKENS, [41])
    again = Driver(driver.backend, num_blocks=20, block_size=8)
    assert np.array_equal(again.scores(TOKENS, [41]), first)


def test_the_profile_covers_every_operation(model):
    one = backend(model)
    driver = Driver(one)
    driver.step({"a": TOKENS})
    assert one.profile(True) == []
    driver.step({"a": [1]})
    times = one.profile(False)
    assert [t.name for t in times] == [op.name for op in model[0].ops]
    assert times[-1].detail == "lm_head.weight"
    assert all(a.start_s + a.duration_s <= b.start_s for a, b in pairwise(times))
    driver.step({"a": [1]})
    assert one.profile(False) == []


def test_a_failed_step_leaves_the_backend_alive(model):
    driver = Driver(backend(model))
    with pytest.raises(IndexError):
        driver.step({"bad": [301]})
    assert np.array_equal(driver.scores(TOKENS, [41]), Driver(backend(model)).scores(TOKENS, [41]))


def test_an_unknown_cache_type_is_refused(model):
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype 'int3'.*float16"):
        backend(model, kv_dtype="int3")


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_a_file_that_changes_changes_nothing(tmp_path, form):
    path = tiny_llama(tmp_path / "model.gguf", format=form, layers=1)
    with open_checkpoint(path) as checkpoint:
        program = build(checkpoint).program
        vocab_size = program.weights["model.embed_tokens.weight"][0]
        loaded = ReferenceBackend(program, checkpoint, vocab_size=vocab_size)
        before = Driver(loaded).scores(TOKENS, [41])
        file = path if path.is_file() else path / "model.safetensors"
        with open(file, "r+b") as out:
            out.write(bytes(file.stat().st_size))
        assert np.array_equal(Driver(loaded).scores(TOKENS, [41]), before)


def test_weights_are_checked(model):
    program, weights = model
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight is missing"):
        ReferenceBackend(
            program, {k: v for k, v in weights.items() if k != "model.norm.weight"}, vocab_size=301
        )
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight is \[53\]; it must be \[54\]"):
        ReferenceBackend(
            program, weights | {"model.norm.weight": np.ones(53, np.float32)}, vocab_size=301
        )
