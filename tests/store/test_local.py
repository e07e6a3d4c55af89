import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.outcome import InputOutput, Refused
from draftmill.store.local import LocalStore
from draftmill.store.reading import get
from tests.store.samples import digest, noise


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """The kernel refuses to write a file beyond 1 MiB, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def leftovers(local: LocalStore) -> list[Path]:
    return list((local.root / ".draftmill" / "tmp").iterdir())


def test_an_object_is_a_plain_file_under_its_key(local: LocalStore) -> None:
    local.create("models/a/x.gguf", b"bytes", digest(b"bytes"))
    assert Path(local.where("models/a/x.gguf")).read_bytes() == b"bytes"
    assert leftovers(local) == []


def test_a_write_that_fails_midway_leaves_nothing(local: LocalStore, small_files_only: None) -> None:
    data = noise(3 << 20)
    with pytest.raises(InputOutput, match="File too large"):
        local.create("a", data, digest(data))
    assert leftovers(local) == []
    assert list(local.entries("")) == []


def test_the_sweep_takes_a_dead_writers_file_and_leaves_a_living_ones(local: LocalStore) -> None:
    local.create("a", b"x", digest(b"x"))
    folder = local.root / ".draftmill" / "tmp"
    (folder / "dead").write_bytes(b"half")
    (folder / "alive").write_bytes(b"half")
    writer = os.open(folder / "alive", os.O_RDWR)
    fcntl.flock(writer, fcntl.LOCK_EX)
    local.sweep()
    assert leftovers(local) == [folder / "alive"]
    os.close(writer)
    local.sweep()
    assert leftovers(local) == []
    assert get(local, "a") == b"x"


def test_hidden_files_are_not_objects(local: LocalStore) -> None:
    local.replace("index.json", b"{}", None)
    assert [entry.key for entry in local.entries("")] == ["index.json"]


def test_a_folder_cannot_become_an_object(local: LocalStore) -> None:
    local.create("a/b", b"x", digest(b"x"))
    with pytest.raises(Refused) as refused:
        local.create("a", b"y", digest(b"y"))
    assert refused.value.code == "store.key_beside_prefix"


def test_an_object_cannot_become_a_folder(local: LocalStore) -> None:
    local.create("a", b"x", digest(b"x"))
    with pytest.raises(InputOutput, match="a file stands where a folder is needed"):
        local.create("a/b", b"y", digest(b"y"))


def test_a_root_that_is_a_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(InputOutput, match="a file stands where a folder is needed"):
        LocalStore(tmp_path / "store").create("a", b"x", digest(b"x"))


def test_a_file_that_was_tampered_with_has_another_head(local: LocalStore) -> None:
    local.create("a", b"x", digest(b"x"))
    Path(local.where("a")).write_bytes(b"y")
    head = local.head("a")
    assert head is not None
    assert head.sha256 == digest(b"y")
