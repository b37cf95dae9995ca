"""open_checkpoint and check_tensors: both formats are one thing; what is wrong is named."""

import json

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.testing.model_files import write_gguf
from octavo.testing.quantise import Encoded
from octavo.testing.tiny import TinyLlama, tiny_llama
from octavo.weights.check import check_tensors
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.encodings import TensorType
from octavo.weights.names import ROPE_FREQS

SHAPES = [
    {},
    {"tie": True, "seed": 5},
    {"hidden": 144, "heads": 9, "kv_heads": 3, "layers": 1},
    {"hidden": 96, "heads": 6, "kv_heads": 2, "head_dim": 32},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_both_formats_hold_equal_weights(tmp_path, shape):
    expected = TinyLlama(**shape)
    with (
        open_checkpoint(tiny_llama(tmp_path / "folder", **shape)) as folder,
        open_checkpoint(tiny_llama(tmp_path / "m.gguf", format="gguf", **shape)) as gguf,
    ):
        for checkpoint in (folder, gguf):
            check_tensors(checkpoint, expected.shapes())
            for name, values in expected.weights().items():
                tensor = checkpoint.tensors[name]
                assert tensor.name == name
                assert np.array_equal(tensor.float32(), values)
        name = "model.layers.0.self_attn.q_proj.weight"
        tensor = gguf.tensors[name]
        stored = tensor.raw().view("<f4").reshape(tensor.shape)
        assert not np.array_equal(stored, tensor.float32())
        assert np.array_equal(stored[tensor.row_order()], tensor.float32())
        assert folder.tensors[name].row_order() is None


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
def test_encoded_weights_come_near(tmp_path, kind):
    path = tiny_llama(tmp_path / "m.gguf", format="gguf", weight_type=kind)
    checkpoint = open_checkpoint(path)
    tolerance = {"F16": 1e-3, "BF16": 1e-2, "Q4_0": 0.2, "Q4_1": 0.1, "Q8_0": 1e-2}[kind]
    for name, values in TinyLlama().weights().items():
        tensor = checkpoint.tensors[name]
        matrix = values.ndim > 1
        assert tensor.type.value == (kind if matrix else "F32")
        assert np.abs(tensor.float32() - values).max() <= (tolerance if matrix else 0)


def test_what_a_folder_says(tmp_path):
    checkpoint = open_checkpoint(tiny_llama(tmp_path / "model", shards=3))
    assert (checkpoint.format, checkpoint.architecture) == ("safetensors", "LlamaForCausalLM")
    assert checkpoint.hf_config["hidden_size"] == 64
    assert checkpoint.metadata == {}
    assert checkpoint.generation_config == {"eos_token_id": 272}
    assert checkpoint.path.name == "model"
    assert len(checkpoint.files) == 3


def test_what_a_gguf_file_says(tmp_path):
    checkpoint = open_checkpoint(tiny_llama(tmp_path / "m.gguf", format="gguf"))
    assert (checkpoint.format, checkpoint.architecture) == ("gguf", "llama")
    assert checkpoint.metadata["llama.embedding_length"] == 64
    assert checkpoint.metadata["tokenizer.ggml.token_type"].kind.name == "I32"
    assert checkpoint.hf_config == checkpoint.generation_config == {}


@pytest.mark.parametrize("text", [None, "{", "[]", "\x00"])
def test_generation_config_is_ignored_when_malformed(tmp_path, text):
    folder = tiny_llama(tmp_path / "model")
    path = folder / "generation_config.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert open_checkpoint(folder).generation_config == {}


def refusal(path):
    with pytest.raises(ModelFileError) as refused:
        open_checkpoint(path)
    return str(refused.value)


def test_a_folder_without_config_is_named(tmp_path):
    folder = tiny_llama(tmp_path / "my-model")
    (folder / "config.json").unlink()
    assert refusal(folder).startswith("my-model: the folder has no config.json")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not valid JSON"),
        ("[]", "no JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "architectures"),
        ('{"architectures": []}', "architectures"),
        ('{"architectures": "LlamaForCausalLM"}', "architectures"),
        ('{"architectures": [1]}', "architectures"),
    ],
)
def test_config_of_no_sense(tmp_path, text, fault):
    folder = tiny_llama(tmp_path / "model")
    (folder / "config.json").write_text(text)
    message = refusal(folder)
    assert message.startswith("config.json: ")
    assert fault in message


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ({}, "'general.architecture' is missing"),
        ({"general.architecture": 3}, "'general.architecture' is missing or no string"),
        (
            {"general.architecture": "warp9"},
            "'warp9' is not supported; supported are gemma3, llama",
        ),
    ],
)
def test_gguf_architectures(tmp_path, metadata, fault):
    message = refusal(write_gguf(tmp_path / "m.gguf", metadata, {}))
    assert message.startswith("m.gguf: ")
    assert fault in message


def test_two_names_of_one_tensor(tmp_path):
    one = np.zeros((2, 2), np.float32)
    tensors = {"output.weight": one, "lm_head.weight": one}
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, tensors)
    assert "'lm_head.weight' and 'output.weight' are one tensor" in refusal(path)


def test_absent_path(tmp_path):
    assert refusal(tmp_path / "nowhere").startswith("nowhere: cannot be read: No such file")


def test_arrays_outlive_the_checkpoint(tmp_path):
    with open_checkpoint(tiny_llama(tmp_path / "model")) as checkpoint:
        values = checkpoint.tensors["model.norm.weight"].float32()
    assert np.array_equal(values, TinyLlama().weights()["model.norm.weight"])


# ------------------------------------------------------------------------------------ check_tensors


@pytest.fixture(params=["folder", "gguf"])
def checkpoint(request, tmp_path):
    path = tmp_path / ("tiny" if request.param == "folder" else "tiny.gguf")
    return open_checkpoint(tiny_llama(path, format=request.param))


def check_refused(checkpoint, expected, **options):
    with pytest.raises(ModelFileError) as refused:
        check_tensors(checkpoint, expected, **options)
    return str(refused.value)


def test_missing_tensor(checkpoint):
    expected = TinyLlama().shapes() | {"model.layers.2.x.weight": (1,)}
    message = check_refused(checkpoint, expected)
    assert message.startswith("tiny")
    assert "1 tensor is missing: 'model.layers.2.x.weight'" in message
    check_tensors(checkpoint, expected, may_be_absent=["model.layers.2."])


def test_many_missing_tensors_are_counted(checkpoint):
    expected = TinyLlama(layers=3).shapes()
    message = check_refused(checkpoint, expected)
    assert "9 tensors are missing" in message
    assert message.endswith(" and 6 more")


def test_extra_tensor(checkpoint):
    expected = TinyLlama(tie=True).shapes()
    message = check_refused(checkpoint, expected)
    name = "output.weight" if checkpoint.format == "gguf" else "lm_head.weight"
    assert f"1 tensor is not of this architecture: {name!r}" in message
    check_tensors(checkpoint, expected, ignored=["lm_head."])
    check_tensors(checkpoint, expected, ignored=["*head.weight"])
    check_refused(checkpoint, expected, ignored=["*head"], may_be_absent=["lm_head."])


def test_misshapen_tensor(checkpoint):
    expected = TinyLlama().shapes() | {"model.norm.weight": (32,)}
    message = check_refused(checkpoint, expected)
    assert "[64], but the configuration asks for [32]" in message
    assert "norm.weight'" in message


def test_types_that_are_not_decoded_are_named(tmp_path):
    blocks = Encoded(TensorType.Q8_K, (2, 256), np.zeros(584, np.uint8))
    path = write_gguf(
        tmp_path / "m.gguf", {"general.architecture": "llama"}, {"output.weight": blocks}
    )
    checkpoint = open_checkpoint(path)
    message = check_refused(checkpoint, {"lm_head.weight": (2, 256)})
    assert message.startswith("m.gguf: Q8_K is not decoded by this version (tensor 'output.weight'")
    assert "it decodes F32, F16, BF16, Q4_0, Q4_1, Q5_0, " in message
    with pytest.raises(ModelFileError, match="Q8_K"):
        checkpoint.tensors["lm_head.weight"].float32()


def test_safetensors_types_that_are_not_decoded_are_named(tmp_path):
    folder = tiny_llama(tmp_path / "model", layers=0)
    header = {
        name: {"dtype": "I64", "shape": [1], "data_offsets": [8 * index, 8 * index + 8]}
        for index, name in enumerate(("a", "b"))
    }
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(16)
    (folder / "model.safetensors").write_bytes(data)
    checkpoint = open_checkpoint(folder)
    assert "I64 is not decoded" in check_refused(checkpoint, {"a": (1,), "b": (1,)})
    check_tensors(checkpoint, {}, ignored=["a", "b"])


def test_rope_divisors_keep_their_name(tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    path = tiny_llama(tmp_path / "m.gguf", format="gguf", rope_scaling=scaling)
    divisors = open_checkpoint(path).tensors[ROPE_FREQS].float32()
    assert divisors.shape == (8,)
    assert divisors[0] == 1
    assert divisors[-1] == 8
    assert np.all(np.diff(divisors) >= 0)
