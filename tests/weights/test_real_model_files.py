"""Real files, where they are at hand: one model in both formats, an F16 model, vocabularies."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.gguf import read_gguf

DATA = Path(__file__).resolve().parents[2] / "../shared/data"
STORIES = DATA / "models/stories260K"
RANDOM = DATA / "models/llama2-tiny-random/llama-2-tiny-random.gguf"
VOCABULARIES = sorted((DATA / "vocab").glob("*.gguf"))


@pytest.mark.skipif(not STORIES.exists(), reason="needs ../shared/data/models")
def test_stories260k_is_the_same_in_both_formats():
    gguf = open_checkpoint(STORIES / "stories260K.gguf")
    folder = open_checkpoint(STORIES / "hf")
    # converted from a format that always stores the head, which equals the embedding
    assert gguf.tensors.keys() - folder.tensors.keys() <= {"lm_head.weight"}
    assert folder.tensors.keys() <= gguf.tensors.keys()
    assert len(folder.tensors) == 5 * 9 + 2
    for name, tensor in folder.tensors.items():
        assert np.array_equal(gguf.tensors[name].float32(), tensor.float32()), name


@pytest.mark.skipif(not RANDOM.exists(), reason="needs ../shared/data/models")
def test_llama2_tiny_random_decodes():
    checkpoint = open_checkpoint(RANDOM)
    types = Counter(tensor.type.value for tensor in checkpoint.tensors.values())
    assert types == {"F16": 9, "F32": 3}
    assert checkpoint.tensors["lm_head.weight"].shape == (32000, 8)
    assert all(np.isfinite(tensor.float32()).all() for tensor in checkpoint.tensors.values())


@pytest.mark.skipif(not VOCABULARIES, reason="needs ../shared/data/vocab")
def test_real_vocabularies_are_read():
    for path in VOCABULARIES:
        metadata = read_gguf(path).metadata
        assert len(metadata["tokenizer.ggml.tokens"]) > 30_000
        assert metadata["tokenizer.ggml.token_type"].kind.name == "I32"
