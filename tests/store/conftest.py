"""Stores under test: a fresh local folder, and a fresh prefix on one SeaweedFS of the session."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.store.interface import Store
from draftmill.store.local import LocalStore
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from draftmill.store.s3 import S3Store
from tests.support import s3_servers
from tests.support.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, Server

_number = itertools.count()


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3_servers.weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3_servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3_servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


def set_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers' credentials where boto3 looks first, and nothing of the machine's own settings."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")


def fresh_url(server: Server) -> str:
    """An address on this server below which nothing is yet."""
    return f"s3://{BUCKET}/t{next(_number)}?endpoint_url={server.endpoint}"


def open_s3(url: str, part_size: int = 5 << 20) -> S3Store:
    store = open_store(url)
    assert isinstance(store, S3Store)
    store.part_size = part_size
    return store


@pytest.fixture(scope="session")
def probed(weed: Server, tmp_path_factory: pytest.TempPathFactory) -> S3Store:
    with pytest.MonkeyPatch.context() as environment:
        set_credentials(environment)
        store = open_s3(fresh_url(weed))
    ready_store(store, tmp_path_factory.mktemp("probes"))
    return store


@pytest.fixture
def s3_store(probed: S3Store) -> S3Store:
    """A fresh prefix; the client is shared, since making one takes half a second."""
    store = S3Store(probed.client, BUCKET, f"t{next(_number)}", probed.part_size)
    store.promises = probed.promises
    return store


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3_store")
