"""A read-only hub over a mirror folder, for closed networks, demos and tests: what huggingface_hub asks for.

Serves `/api/models?author=NAME` in pages, `/api/models/{repo}[/revision/{rev}]`, `.../tree/{rev}`, `.../refs` and
`/{repo}/resolve/{rev}/{file}` (HEAD, GET, one byte range). Fields and headers are those that huggingface_hub's client
reads: siblings with blobId and lfs, X-Repo-Commit, ETag, X-Error-Code.

By hand: `python -m draftmill.hub.server FOLDER`.
"""

import argparse
import json
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from draftmill.digest import sha256_json
from draftmill.hub.card import read_card
from draftmill.hub.checksum import digests_of
from draftmill.hub.described import Blob, Repository, card_of, in_lfs, listed, model_info, tree_entry
from draftmill.hub.local import file_names, mirror_folder, open_path, read_pin
from draftmill.hub.ref import DEFAULT_REVISION, is_repo_name
from draftmill.outcome import Refused

LIST = re.compile(r"/api/models/?")
LISTED = frozenset({"author", "limit", "cursor", "expand", "full", "cardData", "config"})
"""Parameters of a list that are understood; another would be ignored silently, and the answer be a wrong one."""
PAGE = 1000
API = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree|refs)(?:/([^/]+))?)?/?")
FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class HubServer(ThreadingHTTPServer):
    """Digests are computed at a repository's first request and kept while size and time of the file stay."""

    daemon_threads = True

    def __init__(self, root: Path, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.root = root
        self._digests: dict[Path, tuple[tuple[int, int], tuple[str, str]]] = {}
        self._lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early, as one does that wants a file's first bytes, is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def endpoint(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def repository(self, name: str) -> Repository | None:
        if not is_repo_name(name):
            return None
        try:
            folder = mirror_folder(self.root, name)
            pin = read_pin(folder)
            if pin:
                # Never computed from what lies there: that would bless a file that was damaged since.
                files = [Blob(f.path, f.size, f.sha256 or f.blob_id or "", f.sha256 is not None) for f in pin.files]
            else:
                with self._lock:
                    files = [self._blob(folder, n) for n in file_names(folder) if not n.endswith("/")]
        except Refused:
            return None
        blobs = {blob.path: blob for blob in files}
        commit = pin.commit if pin else sha256_json([[blob.path, blob.size, blob.digest] for blob in files])
        card = card_of(pin.licence, pin.base_models) if pin else card_of(*read_card(folder))
        return Repository(name, folder, commit[:40], pin.gated if pin else False, card, blobs)

    def names(self, author: str) -> list[str]:
        """The repositories of an author, or with "" all, in order."""
        authors = [author] if author else sorted(path.name for path in self.root.iterdir() if path.is_dir())
        folders = [self.root / name for name in authors if is_repo_name(f"{name}/x") and (self.root / name).is_dir()]
        return [f"{folder.name}/{entry}" for folder in folders for entry in sorted(p.name for p in folder.iterdir())]

    def _blob(self, folder: Path, name: str) -> Blob:
        path = open_path(folder, name)
        stat = path.stat()
        state = (stat.st_size, stat.st_mtime_ns)
        if self._digests.get(path, (None,))[0] != state:
            self._digests[path] = (state, digests_of(path))
        sha256, blob_id = self._digests[path][1]
        is_lfs = in_lfs(name, stat.st_size)
        return Blob(name, stat.st_size, sha256 if is_lfs else blob_id, is_lfs)


class HubHandler(BaseHTTPRequestHandler):
    """One request. Subclasses misbehave by replacing `answer` or `send_body`."""

    protocol_version = "HTTP/1.1"
    server_version = "draftmill-hub"
    server: HubServer

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a request's headers hold tokens."""

    def answer(self) -> None:
        path = urlsplit(self.path).path
        if LIST.fullmatch(path):
            self._answer_list(parse_qs(urlsplit(self.path).query))
        elif match := API.fullmatch(path):
            self._answer_api(unquote(match[1]), match[2], unquote(match[3] or DEFAULT_REVISION))
        elif match := FILE.fullmatch(path):
            self._answer_file(unquote(match[1]), unquote(match[2]), unquote(match[3]))
        else:
            self.send_error_code(404, "NotFound")

    def _answer_list(self, asked: dict[str, list[str]]) -> None:
        """A page of models, and where there are more a Link to the next, as the Hub's client follows it."""
        start, limit = (asked.get(name, [default])[0] for name, default in (("cursor", "0"), ("limit", str(PAGE))))
        if asked.keys() - LISTED or not (start + limit).isdecimal() or not 0 < int(limit) <= PAGE:
            self.send_error_code(400, "BadRequest")
            return
        names = self.server.names(asked.get("author", [""])[0])
        end = int(start) + int(limit)
        found = (self.server.repository(name) for name in names[int(start) : end])
        models = [listed(model_info(repository), asked) for repository in found if repository]
        headers = {}
        if end < len(names):
            query = urlencode({**asked, "cursor": [end]}, doseq=True)
            headers["Link"] = f'<{self.server.endpoint}/api/models?{query}>; rel="next"'
        self.send_json(models, headers=headers)

    def _found(self, name: str, revision: str) -> Repository | None:
        repository = self.server.repository(name)
        if repository is None:
            self.send_error_code(404, "RepoNotFound")
        elif not repository.has(revision):
            self.send_error_code(404, "RevisionNotFound")
        else:
            return repository
        return None

    def _answer_api(self, name: str, kind: str | None, revision: str) -> None:
        repository = self._found(name, revision)
        if repository is None:
            return
        if kind == "tree":
            self.send_json([tree_entry(blob) for blob in repository.blobs.values()])
        elif kind == "refs":
            branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commit}
            self.send_json({"branches": [branch], "tags": [], "converts": []})
        else:
            self.send_json(model_info(repository))

    def _answer_file(self, name: str, revision: str, path: str) -> None:
        repository = self._found(name, revision)
        if repository is None:
            return
        blob = repository.blobs.get(path)
        if blob is None:
            self.send_error_code(404, "EntryNotFound")
            return
        start, end = 0, blob.size
        asked = RANGE.fullmatch(self.headers.get("Range", ""))
        if asked:
            start, end = int(asked[1]), min(int(asked[2]) + 1 if asked[2] else blob.size, blob.size)
            if start >= end:
                self.send_error_code(416, "RangeNotSatisfiable", {"Content-Range": f"bytes */{blob.size}"})
                return
        self.send_response(206 if asked else 200)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": end - start,
            "Accept-Ranges": "bytes",
            "ETag": f'"{blob.digest}"',
            "X-Repo-Commit": repository.commit,
        }
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
        if blob.is_lfs:
            headers |= {"X-Linked-Etag": f'"{blob.digest}"', "X-Linked-Size": blob.size}
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == "GET":
            self.send_body(open_path(repository.folder, path), start, end)

    def send_body(self, path: Path, start: int, end: int) -> None:
        with path.open("rb") as stream:
            stream.seek(start)
            try:
                if end == path.stat().st_size:
                    shutil.copyfileobj(stream, self.wfile, 1 << 20)
                else:
                    self.wfile.write(stream.read(end - start))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    def send_json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for key, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_error_code(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self.send_json({"error": code}, status, {"X-Error-Code": code, "X-Error-Message": code, **(headers or {})})


@contextmanager
def serve(
    folder: Path, host: str = "127.0.0.1", port: int = 0, handler: type[HubHandler] = HubHandler
) -> Iterator[HubServer]:
    """A running hub over the mirror folder; `.endpoint` is its address. Port 0 takes a free one. Raises OSError."""
    server = HubServer(folder, (host, port), handler)
    thread = threading.Thread(target=server.serve_forever, name="hub", args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves a mirror folder (<owner>/<repo>/files) as a hub, read-only.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8800)
    options = parser.parse_args()
    with serve(options.folder, options.host, options.port) as server:
        sys.stderr.write(f"HF_ENDPOINT={server.endpoint}\n")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
