"""The second real model, Gemma 3 270M (Q4_K_M): it serves, and chooses llama.cpp's words."""

import json
import os
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from octavo.backends.native import NativeBackend
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.server import running_server
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.weights.checkpoint import open_checkpoint

PROJECT = Path(__file__).resolve().parents[2]
MODELS = Path(os.environ.get("OCTAVO_TEST_MODELS") or PROJECT / "test-models")
GEMMA = MODELS / "gemma/gemma.gguf"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not GEMMA.is_file(), reason="scripts/fetch-test-models fetches it"),
]

# What llama.cpp (xllamacpp 2026.10) goes on with, greedily, on this file with every matrix decoded
# to F32: its own rounding of activations is then out of the comparison. On that file Octavo
# chooses each of these words; here its own rounding remains.
LLAMA_CPP = {
    "The capital of France is": " the capital of the country of France. It is the largest city in "
    "France and the second largest city in Europe. It is located in the middle of the country",
    "Water boils at a temperature of": " 100 degrees Celsius.\n\nThe boiling point of water is 100 "
    "degrees Celsius.\n\nThe boiling point of water is 100",
    "Once upon a time there was a": " little girl named Mary. She was a very pretty girl, and she "
    "loved to play with dolls. One day, she was walking down the street when she saw",
    "def fibonacci(n):": "\n    if n == 0:\n        return 0\n    elif n == 1:\n        return 1\n"
    "    elif n == ",
    "The three primary colours are": " red, yellow and blue.\n\nThe three primary colours are red, "
    "yellow and blue.\n\nThe three primary colours are red, yellow and blue.\n\nThe",
    "Der schnellste Weg nach": " Hause ist der Weg des <strong>Büro</strong>. Das ist der "
    "<strong>Büro</strong>, der sich in der <strong>Stadt</strong> <strong>",
}
NEAR = 0.15  # nats


def test_it_serves_sentences():
    with running_server(str(GEMMA)) as server:
        body = {"prompt": "Water boils at a temperature of", "temperature": 0, "max_tokens": 12}
        request = urllib.request.Request(
            f"{server.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        answer = json.load(urllib.request.urlopen(request))
    assert "100 degrees Celsius." in answer["choices"][0]["text"]
    assert answer["usage"] == answer["usage"] | {"prompt_tokens": 7, "completion_tokens": 12}


def test_the_words_of_llama_cpp():
    """Teacher-forced, so that every position counts: its word is ours, or nearly."""
    with open_checkpoint(GEMMA) as checkpoint:
        tokenizer = tokenizer_from_gguf(checkpoint.metadata)
        model = build(checkpoint)
        backend = NativeBackend(model.program, checkpoint, vocab_size=model.config.vocab_size)
    gaps = []
    for prompt, answer in LLAMA_CPP.items():
        begin, ids = tokenizer.encode(prompt), tokenizer.encode(prompt + answer)
        assert ids[: len(begin)] == begin
        scores = Driver(backend).scores(ids, [len(ids)])[len(begin) - 1 : -1]
        chosen = scores[np.arange(len(scores)), ids[len(begin) :]]
        gaps += (scores.max(axis=-1) - chosen).tolist()
    assert len(gaps) > 150
    assert max(gaps) < NEAR
    assert np.mean(np.asarray(gaps) == 0) > 0.95
