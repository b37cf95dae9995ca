"""Hub models against a stand-in hub on localhost: fetched once, gone on with, used offline."""

import json
import os
from contextlib import contextmanager

import pytest
from huggingface_hub import constants, hf_hub_download, scan_cache_dir

from octavo.errors import ConfigError, ModelFileError
from octavo.testing.hub import HubRepo
from octavo.testing.tiny import tiny_llama
from octavo.weights import hub_fetch
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.hub import hub_path
from octavo.weights.hub_files import parse_hub_id
from octavo.weights.resolve import find_model, resolve_model

GGUF = {f"tiny-{quant}.gguf": quant.encode() * 300_000 for quant in ("Q4_K_M", "Q8_0", "IQ4_XS")}


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    folder = tiny_llama(tmp_path_factory.mktemp("hub") / "tiny")
    (folder / "pytorch_model.bin").write_bytes(b"never")
    (folder / "README.md").write_text("# not needed")
    return folder


@pytest.fixture
def hub(hub, tiny_folder):
    hub.repos["org/tiny"] = HubRepo.of_folder(tiny_folder)
    hub.repos["org/tiny-GGUF"] = HubRepo(dict(GGUF))
    return hub


def get(name):
    return resolve_model(name, progress=False)


def get_newest(name):
    return hub_path(parse_hub_id(name), progress=False, newest=True)


# -------------------------------------------------------------------------------------- whole ones


def test_a_folder_is_fetched_once(hub):
    path = get("org/tiny")
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.architecture == "LlamaForCausalLM"
    names = {request.path.rsplit("/", 1)[1] for request in hub.requests}
    assert "model.safetensors" in names
    assert not names & {"pytorch_model.bin", "README.md"}
    before = len(hub.requests)
    assert get("org/tiny") == path
    assert len(hub.requests) == before, "what is in the cache needs no network"


def test_shards_come_by_the_index(hub, tmp_path):
    folder = tiny_llama(tmp_path / "sharded", shards=3)
    (folder / "consolidated.safetensors").write_bytes(b"the same weights once more")
    hub.repos["org/sharded"] = HubRepo.of_folder(folder)
    path = get("org/sharded")
    assert len(list(path.glob("model-*.safetensors"))) == 3
    assert not (path / "consolidated.safetensors").exists()
    with open_checkpoint(path) as checkpoint:
        assert len(checkpoint.files) == 3


def test_the_library_reads_what_was_written(hub):
    """The cache is the library's: other programs find the model in it."""
    path = get("org/tiny")
    found = hf_hub_download("org/tiny", "model.safetensors", local_files_only=True)
    assert os.path.samefile(found, path / "model.safetensors")
    cache = scan_cache_dir(constants.HF_HUB_CACHE)
    assert not cache.warnings
    [repo] = cache.repos
    [revision] = repo.revisions
    assert (repo.repo_id, revision.refs) == ("org/tiny", {"main"})


def test_what_the_library_wrote_is_used(hub):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        hf_hub_download("org/tiny", name)
    hub.status = 500
    assert (get("org/tiny") / "config.json").is_file()


def test_a_snapshot_without_a_vocabulary_is_completed(hub):
    for name in ("config.json", "model.safetensors"):
        hf_hub_download("org/tiny", name)
    before = len(hub.downloads())
    assert (get("org/tiny") / "tokenizer.json").is_file()
    assert not any("store" in request.path for request in hub.downloads()[before:])


def test_a_link_into_the_blobs_shared_by_the_cache_is_read(hub, hub_home):
    """Newer versions of the library keep one blob for several repositories."""
    path = get("org/tiny")
    blob = (path / "model.safetensors").resolve()
    shared = hub_home / "hub" / "blobs" / "ab" / "shared"
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors


def test_a_path_counts_before_a_hub_id(hub, tmp_path, monkeypatch, tiny_folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "tiny").symlink_to(tiny_folder)
    assert get("org/tiny").samefile(tiny_folder)
    assert not hub.requests


def test_a_model_of_no_use_is_told_before_its_weights_come(hub):
    def check(config, name):
        raise ConfigError(f"{name} is {config['architectures'][0]}")

    with pytest.raises(ConfigError, match="org/tiny is LlamaForCausalLM"):
        resolve_model("org/tiny", progress=False, check=check)
    assert not any("/store/" in request.path for request in hub.requests)


def test_nothing_is_fetched_where_nothing_may_be(hub):
    with pytest.raises(ModelFileError, match=r"octavo models pull org/tiny fetches it"):
        find_model("org/tiny")
    assert not hub.requests
    path = get("org/tiny")
    assert find_model("org/tiny") == path


# --------------------------------------------------------------------------------------------- GGUF


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("org/tiny-GGUF", "tiny-Q4_K_M.gguf"),
        ("org/tiny-GGUF:q8_0", "tiny-Q8_0.gguf"),
        ("org/tiny-GGUF:IQ4_XS", "tiny-IQ4_XS.gguf"),
    ],
)
def test_a_quantisation_is_one_file(hub, name, file):
    path = get(name)
    assert (path.name, path.read_bytes()) == (file, GGUF[file])
    assert len(list(path.parent.iterdir())) == 1


def test_another_quantisation_is_fetched_beside_the_first(hub):
    get("org/tiny-GGUF:Q8_0")
    path = get("org/tiny-GGUF:IQ4_XS")
    assert {file.name for file in path.parent.iterdir()} == {"tiny-Q8_0.gguf", "tiny-IQ4_XS.gguf"}


def test_all_parts_of_a_split_file(hub, hub_home):
    parts = {f"big/big-Q8_0-{i:05}-of-00003.gguf": bytes([i]) * 1000 for i in (1, 2, 3)}
    hub.repos["org/big"] = HubRepo({**parts, "README.md": b""})
    path = get("org/big:Q8_0")
    assert path.name == "big-Q8_0-00001-of-00003.gguf"
    assert len(list(path.parent.iterdir())) == 3
    (path.parent / "big-Q8_0-00002-of-00003.gguf").unlink()
    assert get("org/big:Q8_0") == path
    assert len(list(path.parent.iterdir())) == 3, "what is missing is fetched again"


def test_an_unknown_quantisation_lists_the_known(hub):
    with pytest.raises(ModelFileError, match=r"no Q5_0; there are IQ4_XS, Q4_K_M, Q8_0"):
        get("org/tiny-GGUF:Q5_0")


# ---------------------------------------------------------------------------------- broken off


class Killed(BaseException):
    pass


@contextmanager
def killing_progress(after):
    """Stands in for the bar; the process `dies` when so many bytes are there."""

    def report(done):
        if done >= after:
            raise Killed

    yield report


def test_a_broken_download_goes_on_where_it_was(hub, hub_home, monkeypatch):
    """However the process ended: the bytes that came stay, and only the rest is asked for."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    with monkeypatch.context() as patch:
        patch.setattr(hub_fetch, "download_progress", lambda *_, **__: killing_progress(500_000))
        with pytest.raises(Killed):
            get("org/tiny-GGUF")
    [incomplete] = hub_home.rglob("*.incomplete")
    kept = incomplete.stat().st_size
    assert 500_000 <= kept < len(GGUF["tiny-Q4_K_M.gguf"])
    assert get("org/tiny-GGUF").read_bytes() == GGUF["tiny-Q4_K_M.gguf"]
    assert hub.downloads()[-1].range == f"bytes={kept}-"
    assert not list(hub_home.rglob("*.incomplete"))


def test_a_connection_that_breaks_is_made_again(hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    hub.cut_after = 10 << 16
    assert get("org/tiny-GGUF").read_bytes() == GGUF["tiny-Q4_K_M.gguf"]
    assert hub.downloads()[-1].range == f"bytes={10 << 16}-"


def test_other_bytes_are_not_kept(hub, hub_home):
    hub.wrong_bytes = True
    with pytest.raises(ModelFileError, match=r"tiny-Q4_K_M\.gguf.*SHA-256 differs"):
        get("org/tiny-GGUF")
    hub.wrong_bytes = False
    assert get("org/tiny-GGUF").read_bytes() == GGUF["tiny-Q4_K_M.gguf"]


def test_half_a_model_is_no_model(hub):
    """Broken off before the weights: the folder is there, and is not taken for a model."""
    weights = hub.repos["org/tiny"].files.pop("model.safetensors")
    hub.repos["org/tiny"].files["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"x": "model-1.safetensors"}}
    ).encode()
    with pytest.raises(ModelFileError, match=r"names 'model-1\.safetensors', which is not there"):
        get("org/tiny")
    hub.repos["org/tiny"].files["model-1.safetensors"] = weights
    assert (get("org/tiny") / "model-1.safetensors").is_file()


# ------------------------------------------------------------------------------- newer versions


def test_a_newer_version_is_fetched_when_asked_for(hub):
    old = get("org/tiny-GGUF")
    hub.repos["org/tiny-GGUF"].files["tiny-Q4_K_M.gguf"] = b"newer" * 1000
    assert get("org/tiny-GGUF") == old
    new = get_newest("org/tiny-GGUF")
    assert new.read_bytes() == b"newer" * 1000
    assert get("org/tiny-GGUF") == new


def test_without_the_hub_the_cached_version_is_the_newest(hub, caplog):
    path = get("org/tiny-GGUF")
    hub.status = 503
    assert get_newest("org/tiny-GGUF") == path
    assert "503" in caplog.text
    assert "cache is used" in caplog.text


# ---------------------------------------------------------------------------------- refusals


def test_a_gated_model_needs_a_token(hub, monkeypatch):
    hub.repos["org/tiny-GGUF"].needs_token = "hf_right"
    with pytest.raises(ModelFileError, match=r"org/tiny-GGUF: it is gated.*set HF_TOKEN"):
        get("org/tiny-GGUF")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert get("org/tiny-GGUF").is_file()
    stores = [request for request in hub.requests if request.path.startswith("/store/")]
    assert stores
    assert not any(request.token for request in stores), "the token is for the hub alone"


def test_a_token_that_is_not_enough(hub, monkeypatch):
    hub.repos["org/tiny-GGUF"].is_gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(ModelFileError, match=r"gated.*the token given is not enough"):
        get("org/tiny-GGUF")


def test_no_such_model(hub):
    with pytest.raises(ModelFileError, match="org/absent: the hub has no such model"):
        get("org/absent")


def test_no_network(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        ModelFileError, match=r"the hub http.* cannot be reached .*not whole in the cache"
    ):
        get("org/tiny")


def test_offline(hub, monkeypatch):
    path = get("org/tiny")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert get("org/tiny") == path
    with pytest.raises(ModelFileError, match="HF_HUB_OFFLINE forbids"):
        get("org/tiny-GGUF")


def test_a_disk_without_room(hub, monkeypatch):
    usage = type("Usage", (), {"free": 10 << 20})
    monkeypatch.setattr(hub_fetch.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ModelFileError, match=r"2 MB are to be fetched, but 10 MB are free"):
        get("org/tiny-GGUF")


def test_a_disk_that_gets_full(hub, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hub_fetch._Counted, "write", full)
    with pytest.raises(ModelFileError, match="the disk is full; make room"):
        get("org/tiny-GGUF")


def test_a_cache_that_cannot_be_written(hub, hub_home):
    hub_home.mkdir()
    (hub_home / "hub").write_text("no folder")
    with pytest.raises(ModelFileError, match=r"org/tiny cannot be kept in the cache folder"):
        get("org/tiny")


def test_a_file_that_the_hub_does_not_hand_out(hub, monkeypatch):
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", 10**6)
    with pytest.raises(ModelFileError, match=r"'tiny-Q4_K_M\.gguf' has 0 GB.* take a split"):
        get("org/tiny-GGUF")


def test_something_that_is_no_hub(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", f"{hub.url}/store")
    with pytest.raises(ModelFileError):
        get("org/tiny")


@pytest.mark.parametrize(
    "name",
    ["../../tiny-Q5_0.gguf", "/srv/tiny-Q5_0.gguf", "a/../../tiny-Q5_0.gguf", "a\\Q5_0.gguf"],
)
def test_names_that_leave_the_folder_are_refused(hub, hub_home, name):
    hub.repos["org/tiny-GGUF"].files[name] = b"evil"
    with pytest.raises(ModelFileError, match="leads outside the model's folder"):
        get("org/tiny-GGUF:Q5_0")
    assert not [
        path for path in hub_home.rglob("*") if path.is_file() and path.read_bytes() == b"evil"
    ]


def test_an_index_cannot_lead_out_either(hub):
    files = hub.repos["org/tiny"].files
    del files["model.safetensors"]
    index = {"weight_map": {"x": "../../../evil.safetensors"}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    with pytest.raises(ModelFileError, match="leads outside the model's folder"):
        get("org/tiny")


def test_messages_are_one_line(hub):
    hub.status = 418
    with pytest.raises(ModelFileError) as caught:
        get("org/tiny")
    assert str(caught.value).isprintable()


def test_progress_is_shown_in_lines_where_there_is_no_terminal(hub, capsys):
    resolve_model("org/tiny-GGUF")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fetching org/tiny-GGUF: 1.8 MB"
    assert lines[-1] == "fetching org/tiny-GGUF: 100 %"
