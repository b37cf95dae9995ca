"""From the model argument to a path: folders, .gguf files, the quick-start name, hub ids."""

import subprocess
import sys

import pytest

from octavo.errors import ModelFileError
from octavo.weights import hub, resolve
from octavo.weights.resolve import resolve_model


def test_a_folder_and_a_file(tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    assert resolve_model(str(tmp_path)) == tmp_path
    assert resolve_model(f"{tmp_path}/") == tmp_path
    assert resolve_model(str(file)) == file


def test_the_quick_start_name(tmp_path, monkeypatch):
    monkeypatch.setattr(resolve, "smollm2_path", lambda progress: tmp_path / str(progress))
    assert resolve_model("smollm2", progress=False) == tmp_path / "False"


def test_another_file_is_refused(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(b"x")
    with pytest.raises(ModelFileError, match=r"model\.bin.*\.gguf"):
        resolve_model(str(file))


@pytest.mark.parametrize(
    "name", ["absent-model", "/absent/dir", "./org/name", "org/name.gguf", "~/x"]
)
def test_an_absent_model_is_named(name):
    with pytest.raises(ModelFileError, match=name):
        resolve_model(name)


def test_models_of_this_machine_do_not_pay_for_the_hub(tmp_path):
    code = (
        "import sys; from octavo.weights.resolve import resolve_model;"
        f"resolve_model({str(tmp_path)!r}); sys.exit('huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", ["org/name", "Org-1/Name.2-B", "org/name:Q4_K_M"])
def test_a_hub_id_goes_to_the_hub(name, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(hub, "hub_path", lambda hub_id, **_: asked.append(str(hub_id)) or tmp_path)
    assert resolve_model(name) == tmp_path
    assert asked == [name]


@pytest.mark.parametrize(
    "name", ["org/a/b", "org//name", "-org/name", "org/..", "org/name:", "a/b--c"]
)
def test_what_is_no_hub_id_never_does(name):
    with pytest.raises(ModelFileError, match="no model at"):
        resolve_model(name)
