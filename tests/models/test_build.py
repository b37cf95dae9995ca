"""From an open checkpoint to a checked program: both forms agree, and what is wrong is told."""

import json

import numpy as np
import pytest

from octavo.errors import ConfigError, ModelFileError
from octavo.models.registry import build, families
from octavo.testing.tiny import tiny_llama, write_safetensors
from octavo.weights.checkpoint import open_checkpoint


@pytest.fixture
def folder(tmp_path):
    return tiny_llama(tmp_path / "model", layers=2)


def built(path):
    with open_checkpoint(path) as checkpoint:
        return build(checkpoint)


def change(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def tensors(folder):
    with open_checkpoint(folder) as checkpoint:
        return {name: t.float32().copy() for name, t in checkpoint.tensors.items()}


@pytest.mark.parametrize("tie", [False, True])
def test_both_forms_give_one_program(tmp_path, tie):
    models = [
        built(tiny_llama(tmp_path / form, format=form, tie=tie, heads=6, kv_heads=3, hidden=48))
        for form in ("folder", "gguf")
    ]
    assert str(models[0].program) == str(models[1].program)
    assert models[0].program.weights == models[1].program.weights
    assert ("lm_head.weight" in models[0].program.weights) is not tie
    assert models[0].config == models[1].config
    assert [m.architecture for m in models] == ["LlamaForCausalLM", "llama"]


def test_the_program_reads_as_the_paper(folder):
    names = [op.name for op in built(folder).program.ops]
    attention = ["rms_norm", *["linear"] * 3, "rope", "rope", "attention", "linear", "add"]
    mlp = ["rms_norm", "linear", "linear", "silu_mul", "linear", "add"]
    assert names == ["embed", *(attention + mlp) * 2, "rms_norm", "gather", "logits"]


def test_mistral_is_of_the_family(folder):
    change(folder, architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=8)
    model = built(folder)
    windows = {op.attrs["window"] for op in model.program.ops if op.name == "attention"}
    assert (model.architecture, windows) == ("MistralForCausalLM", {8})


def test_the_first_known_architecture_counts(folder):
    model = built(change(folder, architectures=["WarpForCausalLM", "LlamaForCausalLM"]))
    assert model.architecture == "LlamaForCausalLM"


def test_an_unknown_architecture_lists_the_known(folder):
    with pytest.raises(ConfigError, match=r"model: .*WarpForCausalLM.*LlamaForCausalLM, Mistral"):
        built(change(folder, architectures=["WarpForCausalLM"]))


def test_settings_are_named_with_their_file(folder):
    with pytest.raises(ModelFileError, match=r"^model/config\.json: num_attention_heads is 0;"):
        built(change(folder, num_attention_heads=0))


def test_a_tied_head_in_the_file_is_ignored(folder):
    assert "lm_head.weight" not in built(change(folder, tie_word_embeddings=True)).program.weights


def test_old_rotary_buffers_are_ignored(folder):
    weights = tensors(folder)
    weights["model.layers.1.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    write_safetensors(folder / "model.safetensors", weights)
    assert "inv_freq" not in str(built(folder).program)


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        (lambda w: w.pop("model.layers.1.mlp.up_proj.weight"), "model.layers.1.mlp.up_proj"),
        (lambda w: w.update(extra=np.ones(3, np.float32)), "extra"),
        (lambda w: w.update({"model.norm.weight": np.ones(3, np.float32)}), "model.norm"),
    ],
)
def test_missing_extra_and_misshapen_tensors(folder, edit, word):
    weights = tensors(folder)
    edit(weights)
    write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(ModelFileError, match=word):
        built(folder)


def test_more_layers_than_there_are_tensors(folder):
    with pytest.raises(ModelFileError, match=r"model\.layers\.2\."):
        built(change(folder, num_hidden_layers=1000))


def test_no_architecture_has_two_families():
    names = [name for family in families() for name in (*family.architectures, *family.gguf)]
    assert len(names) == len(set(names))
