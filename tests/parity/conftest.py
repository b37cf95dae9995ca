"""transformers as the oracle: models loaded or made there, and their log-probabilities."""

import os
import warnings

import numpy as np
import pytest

from octavo.backends.reference import ReferenceBackend
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.weights.checkpoint import open_checkpoint

TOLERANCE = 5e-5  # of the largest log-probability


class Oracle:
    """transformers' causal language models in float32, with eager attention."""

    def __init__(self, torch, transformers):
        self.torch = torch
        self.transformers = transformers

    def load(self, path, **fields):
        """The model of a folder, or of `gguf_file` in a folder."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.transformers.AutoModelForCausalLM.from_pretrained(
                path, dtype=self.torch.float32, attn_implementation="eager", **fields
            ).eval()

    def make(self, path, config, seed=0):
        """Save a model of random weights, biases and norms included; the model as loaded."""
        self.torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.transformers.AutoModelForCausalLM.from_config(config)
            with self.torch.no_grad():
                for parameter in model.parameters():
                    wide = parameter.dim() == 2
                    values = self.torch.randn(parameter.shape)
                    parameter.copy_(values / parameter.shape[1] ** 0.5 if wide else 1 + values / 5)
            model.save_pretrained(path)
        return self.load(path)

    def scores(self, model, tokens):
        """[len(tokens), rows] natural-log probabilities after each token."""
        with self.torch.no_grad():
            logits = model(self.torch.tensor([tokens])).logits[0].double()
        return np.asarray(self.torch.log_softmax(logits, dim=-1).tolist())

    @staticmethod
    def driver(path, block_size=8):
        """Our reference backend with the model of this path, driven by hand."""
        with open_checkpoint(path) as checkpoint:
            model = build(checkpoint)
            rows = model.config.vocab_size
            backend = ReferenceBackend(model.program, checkpoint, vocab_size=rows)
        return Driver(backend, num_blocks=80, block_size=block_size)

    @staticmethod
    def agree(got, expected):
        """Assert that log-probabilities are equal but for rounding."""
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() / np.abs(expected).max() < TOLERANCE


@pytest.fixture(scope="session")
def oracle():
    """Skips where the extra `parity` is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return Oracle(torch, transformers)
