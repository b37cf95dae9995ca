"""`octavo models list|pull|rm`: the caches by the names that serve takes, and nothing else."""

import json

import pytest

from octavo.cli.main import main
from octavo.cli.models.rm import rm_command
from octavo.cli.terminal import size_in_words
from octavo.testing.hub import HubRepo
from octavo.testing.model_files import write_gguf
from octavo.testing.tiny import tiny_llama
from octavo.weights.mapped import MappedFile

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture(scope="module")
def repos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repos")
    files = {}
    for quant in ("Q8_0", "Q4_0"):
        path = tiny_llama(folder / f"m-{quant}.gguf", format="gguf", weight_type=quant)
        files[path.name] = path.read_bytes()
    other = write_gguf(folder / "other.gguf", {"general.architecture": "m\x1b[2J"}, {})
    return {
        "org/tiny": HubRepo.of_folder(tiny_llama(folder / "tiny")),
        "org/m-GGUF": HubRepo(files),
        "org/other": HubRepo({"other.gguf": other.read_bytes()}),
    }


@pytest.fixture
def run(hub, repos, tmp_path, monkeypatch, capsys):
    """Runs `octavo models` on empty caches; (exit code, stdout, stderr)."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "octavo"))
    hub.repos.update({name: HubRepo(dict(repo.files)) for name, repo in repos.items()})

    def run(*argv):
        capsys.readouterr()
        code = main(["models", *argv])
        return code, *capsys.readouterr()

    return run


def names(run):
    return [model["name"] for model in json.loads(run("list", "--json")[1])]


def size_of(hub_home):
    return sum(p.stat().st_size for p in hub_home.rglob("*") if p.is_file() and not p.is_symlink())


def test_nothing_is_kept_at_first(run):
    assert run("list")[:2] == (0, "no models are kept here; octavo models pull MODEL fetches one\n")
    assert run("list", "--json")[1] == "[]\n"


def test_pull_prints_the_path_and_list_the_names(run, hub):
    code, out, _ = run("pull", "org/tiny", "-q")
    assert (code, out.count("\n")) == (0, 1)
    assert run("pull", "org/m-GGUF:q8_0", "-q")[1].endswith("/m-Q8_0.gguf\n")
    assert names(run) == ["org/m-GGUF:Q8_0", "org/tiny"]
    [gguf, folder] = json.loads(run("list", "--json")[1])
    assert (gguf["format"], gguf["quantization"], gguf["servable"]) == ("gguf", "Q8_0", True)
    assert (folder["format"], folder["architecture"]) == ("safetensors", "LlamaForCausalLM")
    assert folder["path"] + "\n" == out
    table = run("list")[1].splitlines()
    assert table[1].split()[:3] == ["org/m-GGUF:Q8_0", "gguf", "Q8_0"]
    assert " kB " in table[1]


def test_a_name_of_the_list_means_that_file(run):
    for tag in ("Q8_0", "Q4_0"):
        run("pull", f"org/m-GGUF:{tag}", "-q")
    for model in json.loads(run("list", "--json")[1]):
        code, out, _ = run("info", model["name"], "--json")
        assert code == 0
        assert json.loads(out)["path"] == model["path"]


def test_what_no_hub_id_means_is_listed_by_its_path(run, hub, hub_home):
    """Two files of one name, and a repository without an owner, as old ones have none."""
    data = hub.repos["org/m-GGUF"].files["m-Q8_0.gguf"]
    repo = hub_home / "hub" / "models--org--twice"
    for folder in ("x", "y"):
        path = repo / "snapshots" / ("0" * 40) / folder / "m-Q4_K_M.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    run("pull", "org/tiny", "-q")
    (hub_home / "hub" / "models--org--tiny").rename(hub_home / "hub" / "models--old")
    listed = json.loads(run("list", "--json")[1])
    assert len(listed) == 3
    for model in listed:
        assert json.loads(run("info", model["name"], "--json")[1])["path"] == model["path"]
    before = size_of(repo)
    assert run("rm", listed[1]["name"], "-y")[0] == 0
    assert size_of(repo) == before - len(data)
    assert run("rm", listed[0]["name"], "-y")[0] == 0
    assert names(run) == ["org/twice:Q4_K_M"], "now it means one file"


def test_info_says_that_a_name_means_several_files(run, hub):
    files = hub.repos["org/m-GGUF"].files
    files["copy-Q8_0.gguf"] = files["m-Q8_0.gguf"]
    for tag in ("m-Q8_0", "copy-Q8_0"):
        run("pull", f"org/m-GGUF:{tag}", "-q")
    code, _, err = run("info", "org/m-GGUF:Q8_0")
    assert code == 1
    assert "org/m-GGUF:Q8_0: of what is on this machine, Q8_0 means several files: 'm-Q8" in err
    assert "name one of them behind the :" in err
    assert "name one behind a :, of Q8_0" in run("info", "org/m-GGUF")[2]
    assert "is not on this machine" in run("info", "org/m-GGUF:Q4_0")[2]


def test_pull_looks_for_a_newer_version(run, hub):
    first = run("pull", "org/tiny", "-q")[1]
    hub.repos["org/tiny"].files["generation_config.json"] = b'{"temperature": 0.5}'
    second = run("pull", "org/tiny", "-q")[1]
    assert first != second
    assert names(run) == ["org/tiny"], "older versions are the same model"


def test_weights_that_cannot_be_served_are_not_fetched(run, hub):
    files = hub.repos["org/tiny"].files
    files["config.json"] = json.dumps({"architectures": ["OtherForCausalLM"]}).encode()
    code, out, err = run("pull", "org/tiny", "-q")
    assert (code, out) == (1, "")
    assert "org/tiny: the architecture 'OtherForCausalLM' is not known" in err
    assert not [request for request in hub.downloads() if "/store/" in request.path]


def test_pull_warns_of_a_gguf_file_that_cannot_be_served(run):
    code, out, err = run("pull", "org/other", "-q")
    assert (code, out.count("\n")) == (0, 1)
    assert "org/other cannot be served: the architecture 'm\\x1b[2J' is not known" in err


def test_what_cannot_be_served_is_said_and_its_name_escaped(run):
    run("pull", "org/other", "-q")
    out = run("list")[1]
    assert "cannot be served: m\\x1b[2J" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["nonsense", "./org/tiny", "a.gguf"])
def test_pull_takes_hub_ids_only(run, name):
    code, out, err = run("pull", name)
    assert (code, out) == (2, "")
    assert "neither a hub id" in err.splitlines()[-1]


def test_a_failed_pull_is_one_line(run):
    code, out, err = run("pull", "org/absent", "-q")
    assert (code, out) == (1, "")
    assert err.startswith("models: fatal: org/absent: the hub has no such model")
    assert err.count("\n") == 1


# ---------------------------------------------------------------------------------------------- rm


def test_one_quantisation_is_removed_and_the_other_stays(run, hub_home):
    for tag in ("Q8_0", "Q4_0"):
        run("pull", f"org/m-GGUF:{tag}", "-q")
    before = size_of(hub_home)
    code, out, _ = run("rm", "org/m-GGUF:Q8_0", "--yes")
    assert code == 0
    assert out.startswith("removed org/m-GGUF:Q8_0; ")
    assert names(run) == ["org/m-GGUF:Q4_0"]
    assert size_of(hub_home) < before / 1.4
    assert run("info", "org/m-GGUF:Q4_0")[0] == 0


def test_a_repository_goes_with_all_its_versions(run, hub, hub_home):
    run("pull", "org/tiny", "-q")
    hub.repos["org/tiny"].files["generation_config.json"] = b'{"temperature": 0.5}'
    run("pull", "org/tiny", "-q")
    run("pull", "org/m-GGUF:Q4_0", "-q")
    assert run("rm", "org/tiny", "-y")[0] == 0
    assert names(run) == ["org/m-GGUF:Q4_0"]
    assert not (hub_home / "hub" / "models--org--tiny").exists()


def test_contents_that_another_version_has_too_stay(run, hub, repos, hub_home):
    """Removing one model of a snapshot must not take the blob that another name leads to."""
    files = hub.repos["org/m-GGUF"].files
    files["copy-Q8_0.gguf"] = files["m-Q8_0.gguf"]
    run("pull", "org/m-GGUF:m-Q8_0", "-q")
    path = run("pull", "org/m-GGUF:copy-Q8_0", "-q")[1].strip()
    run("rm", "org/m-GGUF:m-Q8_0", "-y")
    MappedFile(hub_home / path).close()


def test_a_broken_off_download_is_removed(run, hub_home):
    blobs = hub_home / "hub" / "models--org--big" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "abc.octavo.incomplete").write_bytes(b"half")
    (blobs.parent / "snapshots").mkdir()
    assert run("rm", "org/big", "--yes")[0] == 0
    assert not blobs.parent.exists()


def _dead_link(repo, snapshot):
    (snapshot / "config.json").symlink_to("../../blobs/absent")


def _ref_without_snapshot(repo, snapshot):
    (repo / "refs" / "main").write_text("0" * 40)


def _stray_file(repo, snapshot):
    (repo / "snapshots" / "stray").write_text("x")


@pytest.mark.parametrize("amiss", [_dead_link, _ref_without_snapshot, _stray_file])
def test_a_quantisation_goes_alone_where_the_cache_is_not_in_order(run, hub_home, amiss):
    """huggingface_hub leaves such a repository out of its list."""
    sizes = {}
    for tag in ("Q8_0", "Q4_0"):
        path = hub_home / run("pull", f"org/m-GGUF:{tag}", "-q")[1].strip()
        sizes[tag] = path.stat().st_size
    snapshot = path.parent
    amiss(snapshot.parent.parent, snapshot)
    before = size_of(hub_home)
    code, out, _ = run("rm", "org/m-GGUF:Q8_0", "-y")
    assert code == 0
    assert f"; {size_in_words(sizes['Q8_0'])} are free again" in out
    assert size_of(hub_home) == before - sizes["Q8_0"]
    assert path.is_file()
    assert names(run) == ["org/m-GGUF:Q4_0"]


def test_the_last_quantisation_leaves_what_is_half_fetched(run, hub_home):
    run("pull", "org/m-GGUF:Q8_0", "-q")
    repo = hub_home / "hub" / "models--org--m-GGUF"
    half = repo / "blobs" / "abc.octavo.incomplete"
    half.write_bytes(b"half")
    assert run("rm", "org/m-GGUF:Q8_0", "-y")[0] == 0
    assert [path for path in repo.rglob("*") if path.is_file()] == [half]
    half.unlink()
    run("pull", "org/m-GGUF:Q8_0", "-q")
    assert run("rm", "org/m-GGUF:Q8_0", "-y")[0] == 0
    assert not repo.exists()


def test_a_cache_that_is_reached_by_a_link_is_as_good(run, hub_home, tmp_path):
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    hub_home.mkdir()
    (hub_home / "hub").symlink_to(elsewhere)
    for tag in ("Q8_0", "Q4_0"):
        run("pull", f"org/m-GGUF:{tag}", "-q")
    before = size_of(elsewhere)
    assert run("rm", "org/m-GGUF:Q8_0", "-y")[0] == 0
    assert 0 < size_of(elsewhere) < before / 1.4
    assert run("rm", "org/m-GGUF:Q4_0", "-y")[0] == 0
    assert not (elsewhere / "models--org--m-GGUF").exists()


def test_no_bytes_are_free_of_contents_that_stay(run, hub):
    files = hub.repos["org/m-GGUF"].files
    files["copy-Q8_0.gguf"] = files["m-Q8_0.gguf"]
    run("pull", "org/m-GGUF:m-Q8_0", "-q")
    run("pull", "org/m-GGUF:copy-Q8_0", "-q")
    assert "; 0 B are free again" in run("rm", "org/m-GGUF:m-Q8_0", "-y")[1]


@pytest.mark.parametrize("name", ["org/m-GGUF", "org/m-GGUF:Q8_0"])
@pytest.mark.parametrize("linked", [".", "snapshots", "blobs"])
def test_folders_elsewhere_are_not_touched(run, hub_home, tmp_path, linked, name):
    run("pull", "org/m-GGUF:Q8_0", "-q")
    folder = hub_home / "hub" / "models--org--m-GGUF" / linked
    elsewhere = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(elsewhere)
    before = size_of(elsewhere)
    code, out, err = run("rm", name, "-y")
    assert (code, out) == (1, "")
    assert f"{name} is not removed" in err
    assert "is a link to another folder" in err
    assert size_of(elsewhere) == before


def test_the_quick_start_model_is_removed(run, tmp_path, monkeypatch):
    from octavo.weights import kept, quickstart, removal

    file = tiny_llama(tmp_path / "tiny-Q8_0.gguf", format="gguf", weight_type="Q8_0")
    for module in (kept, removal):
        monkeypatch.setattr(module, "kept_path", lambda *_: file if file.exists() else None)
    monkeypatch.setattr(removal, "forget", lambda *_: file.unlink())
    assert quickstart.SMOLLM2.name in names(run)
    assert run("rm", "smollm2", "--yes")[0] == 0
    assert names(run) == []


def test_an_unknown_name_lists_the_known(run):
    run("pull", "org/tiny", "-q")
    code, _, err = run("rm", "org/tny", "--yes")
    assert code == 1
    assert "'org/tny' is not kept here; kept are org/tiny" in err


def test_a_folder_of_ones_own_is_never_removed(run, tmp_path):
    folder = tiny_llama(tmp_path / "own")
    code, _, err = run("rm", str(folder), "--yes")
    assert code == 1
    assert "only what was fetched is removed" in err
    assert folder.is_dir()


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_rm_asks_on_a_terminal(run, monkeypatch, answer, code, left):
    run("pull", "org/tiny", "-q")
    asked = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    assert rm_command(["org/tiny"], is_terminal=True) == code
    assert asked[0].startswith("remove org/tiny (")
    assert len(names(run)) == left


def test_rm_needs_a_word_where_it_cannot_ask(run):
    run("pull", "org/tiny", "-q")
    assert rm_command(["org/tiny"], is_terminal=False) == 2
    assert names(run) == ["org/tiny"]


@pytest.mark.parametrize("command", ["pull", "rm", "info"])
def test_a_model_is_needed(run, command):
    code, _, err = run(command)
    assert code == 2
    assert f"octavo models {command}: a MODEL is needed" in err
