"""From files to a served model: sizes that must fit, what ends an answer, which backend."""

import json

import pytest

from octavo.config import config_from
from octavo.errors import ModelFileError
from octavo.serving.loading import load_served
from octavo.testing.tiny import TinyLlama, tiny_llama, write_model
from octavo.testing.tiny_tokenizer import VOCAB_SIZE, token_id

SMALL = {"hidden": 32, "layers": 1}


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(tmp_path):
    model = tiny_llama(tmp_path / "model", **SMALL)
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    further = tokenizer["added_tokens"][-1] | {"id": VOCAB_SIZE, "content": "<|more|>"}
    path.write_text(json.dumps(tokenizer | {"added_tokens": [*tokenizer["added_tokens"], further]}))
    with pytest.raises(ModelFileError) as caught:
        load_served(config_from({"model": str(model), "backend": "reference"}))
    assert f"{VOCAB_SIZE + 1} tokens" in str(caught.value)
    assert f"embeddings for {VOCAB_SIZE}" in str(caught.value)


def test_embeddings_may_have_rows_without_a_token(tmp_path):
    model = tiny_llama(tmp_path / "model", vocab=VOCAB_SIZE + 13, **SMALL)
    served = load_served(config_from({"model": str(model), "backend": "reference"}))
    assert served.vocab_size == VOCAB_SIZE, "rows without a token are never drawn"


def test_a_backend_by_its_name(tmp_path):
    model = tiny_llama(tmp_path / "model", **SMALL)
    served = load_served(config_from({"model": str(model), "backend": "reference"}))
    assert served.backend.name == "reference"


def test_every_source_of_ends_counts_if_the_model_has_it(tmp_path):
    model = tiny_llama(tmp_path / "model", **SMALL)
    own = load_served(config_from({"model": str(model), "backend": "reference"})).eos_token_ids
    further = {"eos_token_id": [3, VOCAB_SIZE, True, "x"]}
    (model / "generation_config.json").write_text(json.dumps(further))
    assert load_served(
        config_from({"model": str(model), "backend": "reference"})
    ).eos_token_ids == own | {3}


class Turned(TinyLlama):
    def gguf_metadata(self):
        more = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": VOCAB_SIZE}
        return super().gguf_metadata() | more


@pytest.mark.parametrize(("kind", "further"), [(TinyLlama, set()), (Turned, {5})])
def test_a_gguf_file_ends_turns_by_key_or_by_name(tmp_path, kind, further):
    path = write_model(tmp_path / "model.gguf", kind(**SMALL), "gguf")
    served = load_served(config_from({"model": str(path), "backend": "reference"}))
    named = {token_id("<|im_end|>"), token_id("<|endoftext|>")}
    assert served.eos_token_ids == named | further
