"""Which files of a repository make a model: names alone decide."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.text.rank_files import TIKTOKEN_NAMES
from octavo.weights.hub_files import (
    SMALL_NAMES,
    check_name,
    choose_files,
    gguf_models,
    parse_hub_id,
    quant_in,
    shard_names,
)

FOLDER = ["config.json", "tokenizer.json", "model.safetensors"]


def ggufs(*tags, prefix="m-"):
    return [f"{prefix}{tag}.gguf" for tag in tags]


def test_the_files_of_a_folder_weights_last():
    names = [*FOLDER, "README.md", "x.py", "pytorch_model.bin", "qwen.tiktoken", "a/b.tiktoken"]
    choice = choose_files(names, None)
    assert choice.files == ("config.json", "tokenizer.json", "qwen.tiktoken", "model.safetensors")
    assert choice.gguf is None


def test_every_vocabulary_that_is_read_is_fetched():
    assert {*TIKTOKEN_NAMES, "tokenizer.json", "tekken.json"} <= set(SMALL_NAMES)


def test_safetensors_count_before_gguf():
    assert choose_files([*FOLDER, *ggufs("Q4_K_M")], None).gguf is None
    assert choose_files([*FOLDER, *ggufs("Q4_K_M")], "Q4_K_M").gguf == "m-Q4_K_M.gguf"


@pytest.mark.parametrize(
    ("names", "tag", "chosen"),
    [
        (ggufs("Q4_K_M", "Q4_K_S", "Q8_0"), None, "m-Q4_K_M.gguf"),
        (ggufs("Q8_0"), None, "m-Q8_0.gguf"),
        (["x.gguf", "mmproj-x-f16.gguf"], None, "x.gguf"),
        (ggufs("IQ4_XS", "Q4_0", "Q4_0_4_4", "Q4_K_S"), "q4_0", "m-Q4_0.gguf"),
        (ggufs("Q4_K_M", "Q4_K"), "Q4_K", "m-Q4_K.gguf"),
        (["llama_q4_0.gguf", "llama_q8_0.gguf"], "Q8_0", "llama_q8_0.gguf"),
        (["m.Q4_K_M.gguf", "m.f16.GGUF"], "F16", "m.f16.GGUF"),
        (ggufs("UD-Q4_K_M", "Q4_K_M"), "Q4_K_M", "m-Q4_K_M.gguf"),
        (ggufs("UD-Q4_K_M", "Q4_K_M"), "UD-Q4_K_M", "m-UD-Q4_K_M.gguf"),
        (["Q8_0/m.gguf", "BF16/m.gguf"], "bf16", "BF16/m.gguf"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "b-Q8_0", "b-Q8_0.gguf"),
    ],
)
def test_a_tag_is_a_whole_word_of_the_name(names, tag, chosen):
    assert choose_files(names, tag).gguf == chosen


@pytest.mark.parametrize(
    ("names", "tag", "message"),
    [
        (ggufs("Q4_0", "Q8_0"), None, "several GGUF files and no Q4_K_M.*Q4_0, Q8_0"),
        (ggufs("Q4_K_M"), "Q4_K", "no Q4_K; there are Q4_K_M"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", "means several files: 'a-Q8_0', 'b-Q8_0'"),
        (["a/m-Q8_0.gguf", "b/m-Q8_0.gguf"], "Q8_0", "means several files"),
        (["m-00001-of-00002.gguf"], None, "parts of 'm' are missing"),
        (FOLDER, "Q8_0", "no GGUF files.*leave :Q8_0 out"),
        (["config.json", "pytorch_model.bin"], None, "'pytorch_model.bin' is a pickle"),
        (["README.md"], None, "neither a config.json"),
        (["../m.gguf"], None, "leads outside"),
        (["m\x1b[2J.gguf"], None, r"'m\\x1b\[2J.gguf' has characters that cannot be printed"),
    ],
)
def test_what_is_no_choice_is_told(names, tag, message):
    with pytest.raises(ModelFileError, match=message):
        choose_files(names, tag)


def test_parts_are_one_model_in_order():
    names = [f"Q8/m-Q8_0-{i:05}-of-00003.gguf" for i in (3, 1, 2)]
    [model] = gguf_models([*names, "imatrix-m.gguf"])
    assert model.parts == tuple(sorted(names))
    assert (model.stem, model.quant, model.is_whole) == ("m-Q8_0", "Q8_0", True)


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "Q4_1"),
        ("m-iq2_xxs", "IQ2_XXS"),
        ("m-UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("Q-8", ""),
        ("x-bf16", "BF16"),
    ],
)
def test_the_quantisation_in_a_name(name, quant):
    assert quant_in(name) == quant


@pytest.mark.parametrize("text", ["org/name", "a/b.c-d_e", "org/name:Q4_K_M", "org/name:x.y-z"])
def test_hub_ids(text):
    assert str(parse_hub_id(text)) == text


@pytest.mark.parametrize(
    "text",
    ["name", "./org/name", "org/name/x", "org/na me", "org/name.gguf", "org/..", "o/" + "n" * 99],
)
def test_no_hub_ids(text):
    assert parse_hub_id(text) is None


@given(st.text(max_size=30) | st.sampled_from(["../x", "a//b", "/x", "a/./b", "C:/x", "a\\b"]))
@settings(max_examples=80)
def test_an_accepted_name_stays_in_its_folder(name):
    try:
        check_name(name)
    except ModelFileError:
        return
    assert ".." not in name.split("/")
    assert name
    assert not name.startswith("/")
    assert name.isprintable()


@pytest.mark.parametrize(
    "index",
    [None, [], {}, {"weight_map": {}}, {"weight_map": {"x": 1}}, {"weight_map": {"x": "x.bin"}}],
)
def test_a_wrong_index_is_refused(index):
    with pytest.raises(ModelFileError):
        shard_names(index)
