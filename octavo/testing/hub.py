"""A stand-in for the Hugging Face hub on localhost: the routes that fetching a model uses.

Weights are answered by a redirect to a store under another host name, as the hub does, so that
tests see which requests carry the token.
"""

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_CHUNK_BYTES = 1 << 14
_WEIGHTS = (".safetensors", ".gguf", ".bin")


@dataclass
class HubRepo:
    """A repository. files: name -> contents. needs_token: a token that requests must bring.

    is_gated: no token is enough.
    """

    files: dict[str, bytes]
    needs_token: str | None = None
    is_gated: bool = False

    @property
    def commit(self) -> str:
        """A hash of the contents, as commits are."""
        parts = sorted(
            (name, hashlib.sha256(data).hexdigest()) for name, data in self.files.items()
        )
        return hashlib.sha1(json.dumps(parts).encode()).hexdigest()

    @classmethod
    def of_folder(cls, folder: Path) -> "HubRepo":
        """The files of a folder."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


class HubRequest(NamedTuple):
    """What came: method, path, the Range header and the token, if there were any."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class FakeHub:
    """The hub's state. Tests change it between requests.

    repos: by `org/name`. requests: those so far. cut_after: bytes of a file after which the next
    answer breaks off, once. status: what every request is answered with; None: as it should be.
    wrong_bytes: the store answers with other bytes of the same length.
    """

    repos: dict[str, HubRepo] = field(default_factory=dict)
    requests: list[HubRequest] = field(default_factory=list)
    cut_after: int | None = None
    status: int | None = None
    wrong_bytes: bool = False
    port: int = 0

    @property
    def url(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a process whose cache is in `home`."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}

    def downloads(self) -> list[HubRequest]:
        """Requests for the bytes of files."""
        return [r for r in self.requests if r.method == "GET" and not r.path.startswith("/api/")]

    def blob(self, sha256: str) -> bytes | None:
        """The contents with this hash."""
        blobs = (data for repo in self.repos.values() for data in repo.files.values())
        return next((data for data in blobs if hashlib.sha256(data).hexdigest() == sha256), None)


@contextmanager
def fake_hub(repos: Mapping[str, HubRepo] | None = None) -> Iterator[FakeHub]:
    """Serve a hub on a free port while the block runs."""
    hub = FakeHub(dict(repos or {}))

    class Handler(_Handler):
        state = hub

    # Dual names: 127.0.0.1 is the hub, localhost the store.
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeHub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Tests read `requests`."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        hub = self.state
        hub.requests.append(HubRequest(self.command, path, self.headers.get("Range"), token))
        if hub.status is not None:
            self._refuse(hub.status, "")
        elif store := re.fullmatch(r"/store/([0-9a-f]{64})", path):
            data = hub.blob(store[1])
            self._send(b"x" * len(data or b"") if hub.wrong_bytes else data or b"", {})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path):
            if (repo := self._repo(found[1], token)) is not None:
                self._listing(found[1], repo)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            if (repo := self._repo(found[1], token)) is not None:
                self._file(repo, found[2])
        else:
            self._refuse(404, "")

    def _repo(self, name: str, token: str | None) -> HubRepo | None:
        repo = self.state.repos.get(name)
        if repo is None:
            self._refuse(404 if token else 401, "RepoNotFound")
        elif repo.is_gated:
            self._refuse(403, "GatedRepo")
        elif repo.needs_token is not None and token != repo.needs_token:
            self._refuse(401, "GatedRepo")
        else:
            return repo
        return None

    def _listing(self, name: str, repo: HubRepo) -> None:
        siblings = [{"rfilename": file} for file in repo.files]
        body = {"_id": "0", "id": name, "modelId": name, "sha": repo.commit, "siblings": siblings}
        self._send(json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: HubRepo, name: str) -> None:
        data = repo.files.get(name)
        if data is None:
            self._refuse(404, "EntryNotFound")
            return
        common = {"X-Repo-Commit": repo.commit}
        if not name.endswith(_WEIGHTS):
            blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()  # as git's
            self._send(data, {**common, "ETag": f'"{blob}"'})
            return
        sha256 = hashlib.sha256(data).hexdigest()
        self.send_response(302)
        for key, value in {
            **common,
            "X-Linked-ETag": f'"{sha256}"',
            "X-Linked-Size": str(len(data)),
            "Location": f"http://localhost:{self.state.port}/store/{sha256}",
            "Content-Length": "0",
        }.items():
            self.send_header(key, value)
        self.end_headers()

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()

    def _send(self, data: bytes, headers: Mapping[str, str]) -> None:
        """The bytes, or the rest of them that a Range asks for."""
        start = 0
        if found := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            start = int(found[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(data)
        if self.state.cut_after is not None and end > self.state.cut_after:
            end, self.state.cut_after = self.state.cut_after, None
            self.close_connection = True
        for at in range(start, end, _CHUNK_BYTES):
            self.wfile.write(data[at : min(at + _CHUNK_BYTES, end)])
