import traceback
from pathlib import Path

import pytest

from draftmill.outcome import BadConfiguration, NotPermitted
from draftmill.store.local import LocalStore
from draftmill.store.opening import open_store
from draftmill.store.s3 import S3Store
from tests.store.conftest import fresh_url
from tests.support.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, Server

CANARY = "canary-in-a-file-90ab"


@pytest.mark.parametrize("url", ["{}/s", "file://{}/s"])
def test_folders_and_file_addresses_are_local_stores(url: str, tmp_path: Path) -> None:
    store = open_store(url.format(tmp_path))
    assert isinstance(store, LocalStore)
    assert store.root == tmp_path / "s"
    assert not store.root.exists()


def test_blanks_in_a_file_address_are_decoded(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/my%20store")
    assert store.name == f"{tmp_path}/my store"


def test_an_s3_address_names_bucket_and_prefix() -> None:
    store = open_store("s3://bucket/a/b?endpoint_url=http://127.0.0.1:1")
    assert isinstance(store, S3Store)
    assert (store.bucket, store.prefix) == ("bucket", "a/b")
    assert store.where("k") == "s3://bucket/a/b/k"
    assert store.name == "s3://bucket/a/b at http://127.0.0.1:1"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_comes_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:2")
    assert open_store("s3://bucket").name == "s3://bucket at http://127.0.0.1:2"


@pytest.mark.parametrize(
    "url",
    [
        "http://somewhere/bucket",
        "s3://",
        "s3://bucket#x",
        "s3://bucket?colour=red",
        "s3://bucket?endpoint_url",
        "s3://bucket?endpoint_url=127.0.0.1:1",
        "file://host/folder",
        "s3://bucket/.hidden",
        "s3://bucket/a//b",
        f"s3://me:{CANARY}@bucket",
        f"s3://bucket?endpoint_url=http://me:{CANARY}@127.0.0.1",
    ],
)
def test_addresses_that_cannot_be_used_are_refused_without_quoting_a_password(url: str) -> None:
    with pytest.raises(BadConfiguration) as error:
        open_store(url)
    assert error.value.code == "store.address"
    assert CANARY not in "".join(traceback.format_exception(error.value))


def test_credentials_from_a_file_win_over_the_environment(weed: Server, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = wrong\n")
    with pytest.raises(NotPermitted):
        open_store(fresh_url(weed), file).identity()


def test_credentials_from_a_file_that_the_environment_names(
    weed: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("DRAFTMILL_STORE_CREDENTIALS", str(file))
    assert open_store(fresh_url(weed)).identity()[:2] == [weed.endpoint, BUCKET]


@pytest.mark.parametrize("text", [CANARY, f"[default]\n{CANARY}", f"[other]\nx = {CANARY}", f"[default]\nx = {CANARY}"])
def test_a_credentials_file_that_cannot_be_read_is_not_quoted(text: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(text)
    with pytest.raises(BadConfiguration) as error:
        open_store("s3://bucket", tmp_path / "secret")
    assert error.value.code == "store.credentials_file"
    assert CANARY not in "".join(traceback.format_exception(error.value))


def test_a_credentials_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="nowhere"):
        open_store("s3://bucket", tmp_path / "nowhere")
