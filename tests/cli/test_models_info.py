"""`octavo models info`: what the files say, also of strangers' and of broken ones."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.backends.native import NativeBackend
from octavo.cli.main import main
from octavo.cli.terminal import escaped, escaped_lines, size_in_words
from octavo.models.registry import build
from octavo.serving.describe import describe_model
from octavo.testing.model_files import write_gguf
from octavo.testing.tiny import TinyLlama, tiny_llama
from octavo.weights.checkpoint import open_checkpoint

EVIL = "\x1b]0;owned\x07\u202e\r\nmodel"


@pytest.fixture
def info(capsys):
    """Runs the command; (exit code, stdout, stderr)."""

    def run(path, *argv):
        code = main(["models", "info", str(path), *argv])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_a_model_that_is_served(info, tmp_path, form):
    name = "tiny" if form == "folder" else "tiny.gguf"
    path = tiny_llama(tmp_path / name, format=form)
    shape = TinyLlama()
    code, out, _ = info(path, "--json", "--tensors")
    found = json.loads(out)
    assert code == 0
    assert (found["servable"], found["refusal"]) == (True, None)
    sizes = found["sizes"]
    assert (sizes["layers"], sizes["heads"], sizes["kv_heads"]) == (2, 4, 2)
    assert (sizes["hidden"], sizes["context"], sizes["head_dim"]) == (64, 2048, 16)
    assert found["parameters"] == sum(v.size for v in shape.weights().values())
    assert len(found["tensors"]) == len(shape.shapes())
    assert found["tokenizer"]["kind"] == "byte-level BPE"
    assert found["tokenizer"]["eos"]["token"] == "<|im_end|>"
    assert found["chat_template"] == shape.template
    assert found["memory"]["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    text = info(path, "--tensors")[1]
    assert re.search(r"^served +yes$", text, re.MULTILINE)
    assert "2 layers" in text
    assert f"{found['parameters']:,}" in text
    assert found["tensors"][0]["name"] in text


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("weight_type", ["F32", "F16", "Q8_0", "Q4_K", "Q6_K"])
def test_the_memory_is_what_the_backend_takes(tmp_path, weight_type, tie):
    shape = {"hidden": 256, "intermediate": 512, "tie": tie}
    path = tiny_llama(tmp_path / "m.gguf", format="gguf", weight_type=weight_type, **shape)
    told = describe_model(path).memory
    with open_checkpoint(path) as checkpoint:
        model = build(checkpoint)
        rows = model.config.vocab_size
        backend = NativeBackend(model.program, checkpoint, vocab_size=rows)
    backend.wait_loaded()
    assert told.weights_bytes == pytest.approx(backend.weight_bytes, rel=0.05)
    assert told.kv_token_bytes == sum(group.bytes_per_token for group in backend.cache_groups)


def strange_file(path, **more):
    metadata = {
        "general.architecture": "rwkv9" + EVIL,
        "general.name": EVIL,
        f"rwkv9{EVIL}.block_count": 4,
        f"rwkv9{EVIL}.embedding_length": 32,
        f"rwkv9{EVIL}.attention.head_count": [1, 2, 4, 4],
        "tokenizer.chat_template": EVIL,
        **more,
    }
    import numpy as np

    return write_gguf(path, metadata, {"w" + EVIL: np.zeros((4, 32), np.float32)})


def test_an_architecture_that_is_not_served(info, tmp_path):
    path = strange_file(tmp_path / "strange.gguf")
    code, out, err = info(path, "--tensors")
    assert (code, err) == (0, "")
    assert re.search(r"^served +no: .*not supported", out, re.MULTILINE)
    assert "4 layers" in out
    assert "4 heads" in out
    assert "tokenizer      cannot be read" in out
    assert out.replace("\n", "").isprintable(), "control characters of strangers are spelled"
    found = json.loads(info(path, "--json")[1])
    assert found["title"] == EVIL
    assert found["memory"]["kv_bytes_per_token"] == 2 * 4 * 4 * 8 * 2


def test_a_folder_of_another_architecture(info, tmp_path):
    folder = tiny_llama(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    text_config = {name: config.pop(name) for name in ("num_hidden_layers", "hidden_size")}
    config |= {"architectures": ["SeesForConditionalGeneration"], "text_config": text_config}
    (folder / "config.json").write_text(json.dumps(config))
    found = json.loads(info(folder, "--json")[1])
    assert not found["servable"]
    assert "SeesForConditionalGeneration" in found["refusal"]
    assert (found["sizes"]["layers"], found["sizes"]["hidden"]) == (2, 64)


def test_the_template_whole(info, tmp_path, monkeypatch):
    path = strange_file(tmp_path / "strange.gguf")
    assert info(path, "--template")[:2] == (0, EVIL)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = info(path, "--template")[1]
    assert out == "\\x1b]0;owned\\x07\\u202e\\r\nmodel\n"


def test_no_template(info, tmp_path):
    path = tiny_llama(tmp_path / "m.gguf", format="gguf", template=None)
    code, out, err = info(path, "--template")
    assert (code, out) == (1, "")
    assert err.startswith("models: fatal: ")
    assert "no chat template" in err


@pytest.mark.parametrize("flags", [("--json",), ("--tensors",)])
def test_the_template_stands_alone(info, tmp_path, flags):
    assert info(tmp_path, "--template", *flags)[0] == 2


def test_what_is_no_model_is_one_line(info, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    for path in (tmp_path / "x.gguf", tmp_path, tmp_path / "absent"):
        code, out, err = info(path)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("models: fatal: ")


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_files_end_in_words(tmp_path_factory, data):
    """A byte turned anywhere in the header: described, or refused in one line."""
    folder = tmp_path_factory.mktemp("broken")
    path = strange_file(folder / "s.gguf") if data.draw(st.booleans()) else None
    path = path or tiny_llama(folder / "t.gguf", format="gguf", layers=1)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, min(len(raw), 20_000) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(len(raw) // 2, len(raw)))])
    assert main(["models", "info", str(path)]) in (0, 1)


@given(st.text())
@settings(max_examples=60)
def test_escaped_text_is_printable(text):
    assert escaped(text).isprintable()
    assert escaped_lines(text).replace("\n", "").replace("\t", "").isprintable()


def test_sizes_in_words():
    assert [size_in_words(n) for n in (0, 999, 98_362_432, 5 * 10**9, 10**16)] == [
        *("0 B", "999 B", "98.4 MB", "5.0 GB", "10000.0 TB")
    ]
