"""The small hub against the real huggingface_hub client."""

import hashlib
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftmill.hub.ref import Ref
from draftmill.hub.resolve import resolve
from draftmill.hub.server import serve
from draftmill.hub.source import Hub, Mirror
from draftmill.outcome import Refused
from tests.support.hub_server import write_mirror

REPO = "acme/tiny"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    root = write_mirror(tmp_path / "mirror", weights=100_000)
    (root / REPO / "LICENSE").write_text("abc")
    return root


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()


def test_the_clients_snapshot_of_it_is_the_folder(mirror: Path, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download

    with serve(mirror) as hub:
        got = Path(snapshot_download(REPO, endpoint=hub.endpoint, local_dir=tmp_path / "got", token=False))
    names = {path.name for path in (mirror / REPO).iterdir()}
    assert {path.name for path in got.iterdir() if path.is_file()} == names
    assert all((got / name).read_bytes() == (mirror / REPO / name).read_bytes() for name in names)


def test_the_clients_cache_and_api_understand_it(mirror: Path, tmp_path: Path) -> None:
    from huggingface_hub import HfApi, hf_hub_download

    with serve(mirror) as hub:
        api = HfApi(endpoint=hub.endpoint, token=False)
        info = api.model_info(REPO, files_metadata=True)
        assert info.sha is not None
        path = hf_hub_download(REPO, "config.json", endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token=False)
        assert f"snapshots/{info.sha}/" in path
        assert sha256(Path(path)) == sha256(mirror / REPO / "config.json")
        tree = {entry.path: entry for entry in api.list_repo_tree(REPO)}
        assert tree["LICENSE"].blob_id == "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"  # git hash-object of "abc"
        assert tree["model.safetensors"].lfs.sha256 == sha256(mirror / REPO / "model.safetensors")
        assert api.list_repo_refs(REPO).branches[0].target_commit == info.sha
        assert api.file_exists(REPO, "LICENSE")
        assert not api.file_exists(REPO, "absent")
        assert api.revision_exists(REPO, info.sha)
        assert not api.revision_exists(REPO, "v9")
        assert not api.repo_exists("acme/absent")


@pytest.mark.parametrize(
    ("asked", "status", "body", "part"),
    [
        ("bytes=0-", 206, b"abc", "bytes 0-2/3"),
        ("bytes=1-", 206, b"bc", "bytes 1-2/3"),
        ("bytes=1-1", 206, b"b", "bytes 1-1/3"),
        ("bytes=0-99", 206, b"abc", "bytes 0-2/3"),
        ("lines=1-", 200, b"abc", None),
        ("bytes=3-", 416, None, "bytes */3"),
    ],
)
def test_a_range_is_answered_by_the_book(
    mirror: Path, asked: str, status: int, body: bytes | None, part: str | None
) -> None:
    with serve(mirror) as hub:
        code, headers, content = get(f"{hub.endpoint}/{REPO}/resolve/main/LICENSE", Range=asked)
    assert (code, headers.get("content-range")) == (status, part)
    assert body is None or content == body


@pytest.mark.parametrize(
    "path",
    [
        "/acme/tiny/resolve/main/../../../secret",
        "/acme/tiny/resolve/main/%2e%2e%2f%2e%2e%2fsecret",
        "/acme/tiny/resolve/main/%2Fetc%2Fpasswd",
        "/acme/../resolve/main/secret",
        "/acme/%2e%2e/resolve/main/secret",
        "/acme/tiny/resolve/main/.listing.json",
        "/acme/tiny/resolve/v9/LICENSE",
        "/api/models/acme/%2e%2e",
        "/",
    ],
)
def test_nothing_but_the_repositorys_files_is_served(mirror: Path, path: str) -> None:
    (mirror / "secret").write_text("canary")
    with serve(mirror) as hub:
        code, _, body = get(hub.endpoint + path)
    assert code == 404
    assert b"canary" not in body


def test_a_link_out_of_the_mirror_is_not_served(mirror: Path) -> None:
    (mirror / "secret").write_text("canary")
    (mirror / REPO / "NOTICE").symlink_to(mirror / "secret")
    with serve(mirror) as hub:
        assert get(f"{hub.endpoint}/{REPO}/resolve/main/NOTICE")[0] == 404


def test_a_pinned_mirror_is_served_at_its_commit_and_with_its_digests(mirror: Path) -> None:
    listing = resolve(Ref(REPO), Mirror(mirror), "model").model_copy(update={"commit": "cd" * 20, "gated": "manual"})
    (mirror / REPO / ".listing.json").write_text(json.dumps(listing.as_json()))
    (mirror / REPO / "LICENSE").write_text("abd")
    with serve(mirror) as hub:
        served = resolve(Ref(REPO, "cd" * 20), Hub(hub.endpoint), "model")
    assert (served.commit, served.gated) == ("cd" * 20, "manual")
    assert {f.path: f.sha256 for f in served.files} == {f.path: f.sha256 for f in listing.files}


def test_a_changed_file_changes_the_commit_while_it_runs(mirror: Path) -> None:
    with serve(mirror) as hub:
        before = resolve(Ref(REPO), Hub(hub.endpoint), "model").commit
        (mirror / REPO / "LICENSE").write_text("other")
        assert resolve(Ref(REPO), Hub(hub.endpoint), "model").commit != before
        with pytest.raises(Refused):
            resolve(Ref(REPO, before), Hub(hub.endpoint), "model")


def test_many_at_once_get_whole_files(mirror: Path) -> None:
    expected = (mirror / REPO / "model.safetensors").read_bytes()
    with serve(mirror) as hub, ThreadPoolExecutor(8) as pool:
        url = f"{hub.endpoint}/{REPO}/resolve/main/model.safetensors"
        assert all(body == expected for _, _, body in pool.map(get, [url] * 16))


def test_it_ends_with_its_context(mirror: Path) -> None:
    before = set(threading.enumerate())
    with serve(mirror) as hub:
        endpoint = hub.endpoint
    with pytest.raises(urllib.error.URLError):
        get(endpoint + "/")
    assert not [t for t in set(threading.enumerate()) - before if t.name == "hub"]
