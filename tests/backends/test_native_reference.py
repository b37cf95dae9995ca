"""The native backend against the reference: every weight type, every option of an operation."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from octavo.backends.base import RowSampling
from octavo.backends.native import NativeBackend
from octavo.backends.native_program import WEIGHT_TYPES
from octavo.backends.reference import ReferenceBackend
from octavo.errors import ConfigError, ModelFileError
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.tiny import tiny_llama
from octavo.testing.tiny_gemma import tiny_gemma
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import TensorType

TOKENS = np.random.default_rng(7).integers(0, 256, 90).tolist()
ODD = {"hidden": 54, "heads": 9, "kv_heads": 3, "intermediate": 77, "vocab": 301}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def make(path, config=None, **shape):
    """(program, checkpoint, vocabulary) of a tiny model; config: further entries of config.json."""
    tiny_llama(path, **shape)
    if config is not None:
        file = path / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | config))
    checkpoint = open_checkpoint(path)
    model = build(checkpoint)
    return model.program, checkpoint, model.config.vocab_size


def both(made, **native):
    program, checkpoint, vocab_size = made
    kv_dtype = native.pop("kv_dtype", "float32")
    reference = ReferenceBackend(program, checkpoint, vocab_size=vocab_size, kv_dtype=kv_dtype)
    return reference, NativeBackend(
        program, checkpoint, vocab_size=vocab_size, kv_dtype=kv_dtype, **native
    )


def mean_kl(expected, got):
    """Kullback-Leibler divergence in nats a token, of log-probabilities [T, vocabulary]."""
    expected, got = expected.astype(np.float64), got.astype(np.float64)
    return np.mean(np.sum(np.exp(expected) * (expected - got), axis=-1))


def compare(made, **native):
    reference, ours = (Driver(backend, num_blocks=30) for backend in both(made, **native))
    return mean_kl(reference.scores(TOKENS, [90]), ours.scores(TOKENS, [50, 40]))


EXACT = ("F32", "F16", "BF16", "Q2_K", "Q3_K")
"""Types that read activations as they are, or in two terms of int8 everywhere."""


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
@pytest.mark.parametrize("tie", [False, True])
def test_weight_types(tmp_path, weight_type, tie):
    shape = {"hidden": 96, "heads": 6, "intermediate": 160, "tie": tie}
    if TensorType[weight_type].block_size == 256:
        shape |= {"hidden": 256, "heads": 8, "intermediate": 512}
    made = make(tmp_path / "m.gguf", format="gguf", weight_type=weight_type, **shape)
    assert compare(made) < (1e-6 if weight_type in EXACT else 3e-3)


CASES = {
    "odd sizes": (ODD, None),
    "one key head": ({"kv_heads": 1}, None),
    "as many key heads": ({"kv_heads": 4}, None),
    "wide heads": ({"head_dim": 40}, None),
    "scaled rope": ({"rope_scaling": LLAMA3}, None),
    "window": (
        {},
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 13},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_shapes_and_options(tmp_path, case):
    shape, config = CASES[case]
    assert compare(make(tmp_path / "m", config, **shape)) < 1e-6


GEMMAS = {
    "as it is": {},
    "odd sizes": ODD | {"head_dim": 10, "window": 13},
    "one key head, 4 bits": {"kv_heads": 1, "weight_type": "Q4_0", "head_dim": 32},
}


@pytest.mark.parametrize("case", GEMMAS)
def test_gemma(tmp_path, case):
    """Norms by head, scaled embeddings, gelu, windows in some layers only."""
    path = tiny_gemma(tmp_path / "m.gguf", format="gguf", **GEMMAS[case])
    checkpoint = open_checkpoint(path)
    model = build(checkpoint)
    made = model.program, checkpoint, model.config.vocab_size
    assert compare(made) < (3e-3 if "weight_type" in GEMMAS[case] else 1e-6)


def test_biases(tmp_path):
    from octavo.testing.model_files import write_safetensors
    from octavo.testing.tiny import TinyLlama, encode
    from octavo.weights.encodings import TensorType

    path = tmp_path / "m"
    tiny_llama(path)
    weights = TinyLlama().weights()
    random = np.random.default_rng(3)
    for name in list(weights):
        if name.endswith("_proj.weight"):
            rows = weights[name].shape[0]
            weights[name.replace("weight", "bias")] = random.standard_normal(rows, np.float32)
    tensors = {name: encode(values, TensorType.F32) for name, values in weights.items()}
    write_safetensors(path / "model.safetensors", tensors)
    file = path / "config.json"
    config = json.loads(file.read_text()) | {"attention_bias": True, "mlp_bias": True}
    file.write_text(json.dumps(config))
    checkpoint = open_checkpoint(path)
    model = build(checkpoint)
    assert compare((model.program, checkpoint, model.config.vocab_size)) < 1e-6


@pytest.mark.parametrize("kv_dtype", ["float16", "bfloat16"])
def test_narrow_caches(tmp_path, kv_dtype):
    """The same rounding on both sides, so that only a number next to a tie differs."""
    made = make(tmp_path / "m")
    assert compare(made, kv_dtype=kv_dtype) < 1e-5


def test_float16_is_the_default_cache(tmp_path):
    program, checkpoint, vocab_size = make(tmp_path / "m")
    sizes = {"auto": 2, "float16": 2, "bfloat16": 2, "float32": 4}
    for kv_dtype, itemsize in sizes.items():
        backend = NativeBackend(program, checkpoint, vocab_size=vocab_size, kv_dtype=kv_dtype)
        (group,) = backend.cache_groups
        assert group.layers == (0, 1)
        assert group.bytes_per_token == 2 * 2 * 2 * 16 * itemsize


def test_the_checkpoint_may_be_closed(tmp_path):
    made = make(tmp_path / "m", **ODD)
    expected = Driver(both(made)[1]).scores(TOKENS[:20], [20])
    backend = both(made)[1]
    made[1].close()
    assert np.array_equal(Driver(backend).scores(TOKENS[:20], [20]), expected)


def test_rows_without_a_token_are_never_looked_at(tmp_path):
    program, checkpoint, _ = make(tmp_path / "m", **ODD)
    rows = {"s": [RowSampling(num_logprobs=290)]}
    ours, theirs = (
        Driver(kind(program, checkpoint, vocab_size=290, kv_dtype="float32")).step(
            {"s": TOKENS[:9]}, rows
        )
        for kind in (NativeBackend, ReferenceBackend)
    )
    assert max(ours.logprobs[0].top_ids) < 290
    assert ours.token_ids.tolist() == theirs.token_ids.tolist()
    assert ours.logprobs[0].chosen == pytest.approx(theirs.logprobs[0].chosen, abs=1e-4)


def test_only_wanted_rows_are_put_out(tmp_path):
    backend = both(make(tmp_path / "m"))[1]
    out = Driver(backend).step(
        {"a": TOKENS[:9], "b": TOKENS[:8]}, {"b": [RowSampling(), RowSampling(), RowSampling()]}
    )
    assert out.token_ids.shape == (3,)
    assert out.logprobs == (None, None, None)
    nothing = Driver(backend).step({"a": TOKENS[:9]}, {})
    assert nothing.token_ids.shape == (0,)
    assert nothing.logprobs == ()


def test_the_profile_covers_every_operation(tmp_path):
    program, checkpoint, vocab_size = make(tmp_path / "m")
    backend = NativeBackend(program, checkpoint, vocab_size=vocab_size, threads=2)
    driver = Driver(backend)
    driver.step({"a": TOKENS[:9]})
    assert backend.profile(True) == []
    driver.step({"a": [1]})
    times = backend.profile(False)
    assert [t.name for t in times] == [op.name for op in program.ops]
    assert times[-1].detail == "lm_head.weight"
    assert all(t.duration_s > 0 for t in times)
    assert all(a.start_s <= b.start_s for a, b in pairwise(t for t in times if t.name == "linear"))
    driver.step({"a": [1]})
    assert backend.profile(False) == []


def test_a_batch_that_does_not_fit_fails_and_nothing_else(tmp_path):
    backend = both(make(tmp_path / "m", **ODD))[1]
    expected = Driver(backend).scores(TOKENS[:20], [20])
    driver = Driver(backend)
    with pytest.raises(IndexError, match="token id"):
        driver.step({"bad": [301]})
    with pytest.raises(IndexError, match="token id"):
        driver.step({"worse": [-1]})
    assert np.array_equal(driver.scores(TOKENS[:20], [20]), expected)
    backend.allocate_cache(2, 4)
    with pytest.raises(IndexError, match="slot"):
        driver.step({"long": TOKENS[:20]})


def test_an_overtaken_step_cannot_be_finished(tmp_path):
    backend = both(make(tmp_path / "m"))[1]
    driver = Driver(backend)
    first = backend.start(driver._batch({"a": [1]}, {"a": (RowSampling(),)}))
    second = backend.start(driver._batch({"b": [2]}, {"b": (RowSampling(),)}))
    with pytest.raises(RuntimeError, match="later one"):
        first.finish()
    assert second.finish().token_ids.shape == (1,)


def test_what_is_not_known_is_refused(tmp_path, monkeypatch):
    program, checkpoint, vocab_size = make(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype 'int3'.*float16"):
        NativeBackend(program, checkpoint, vocab_size=vocab_size, kv_dtype="int3")
    monkeypatch.setenv("OCTAVO_ISA", "sse9")
    with pytest.raises(ConfigError, match=r"OCTAVO_ISA is 'sse9'.*scalar"):
        NativeBackend(program, checkpoint, vocab_size=vocab_size)


def test_weights_are_checked(tmp_path):
    program, checkpoint, vocab_size = make(tmp_path / "m")
    tensors = dict(checkpoint.tensors)
    norm = tensors.pop("model.norm.weight")

    class Damaged:
        pass

    damaged = Damaged()
    damaged.tensors = tensors
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight is missing"):
        NativeBackend(program, damaged, vocab_size=vocab_size)
    damaged.tensors = tensors | {"model.norm.weight": tensors["lm_head.weight"]}
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight is \[\d+, 64\]; it must be"):
        NativeBackend(program, damaged, vocab_size=vocab_size)
    assert norm.shape == (64,)


def test_a_load_that_is_given_up_says_so(tmp_path):
    program, checkpoint, vocab_size = make(tmp_path, layers=40, hidden=768, intermediate=2048)
    backend = NativeBackend(program, checkpoint, vocab_size=vocab_size)
    backend.stop_loading()
    with pytest.raises(RuntimeError, match="given up"):
        backend.wait_loaded()


def resident_kib(path):
    """KiB of a file's pages that this process has mapped and touched."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split(" ", 1)[0].endswith(":"):  # the head of a mapping, not one of its fields
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's smaps")
def test_a_files_pages_are_given_back_once_the_weights_are_packed(tmp_path):
    path = tmp_path / "model.gguf"
    tiny_llama(path, format="gguf", layers=4, tie=True)
    with open_checkpoint(path) as checkpoint:
        model = build(checkpoint)
        touched = sum(int(file.bytes.max()) for file in checkpoint.files)
        assert touched
        assert resident_kib(path) > 256
        backend = NativeBackend(
            model.program, checkpoint, vocab_size=model.config.vocab_size, kv_dtype="float32"
        )
        backend.wait_loaded()
        assert resident_kib(path) == 0
        reference = ReferenceBackend(
            model.program, checkpoint, vocab_size=model.config.vocab_size, kv_dtype="float32"
        )
    ours, theirs = (Driver(which, num_blocks=30) for which in (backend, reference))
    tokens = TOKENS[:40]
    assert mean_kl(theirs.scores(tokens, [40]), ours.scores(tokens, [40])) < 1e-6
