import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.outcome import BadConfiguration, InputOutput, NotPermitted, Refused
from draftmill.store.interface import Check, Promises
from draftmill.store.local import LocalStore
from draftmill.store.opening import open_store
from draftmill.store.probe import CONSEQUENCES, Probe, finding, probe, ready_store
from tests.store.conftest import fresh_url
from tests.store.samples import digest
from tests.store.scripted import Answer, scripted
from tests.support.s3_servers import BUCKET, Server

ALL_PROMISES = Promises(conditional_complete=True, conditional_replace=True, checksums=True, metadata=True)


def named(found: Probe, status: str) -> set[str]:
    return {check.name for check in found.checks if check.status == status}


def test_seaweedfs_keeps_every_promise_and_is_left_clean(weed: Server) -> None:
    store = open_store(fresh_url(weed))
    found = probe(store)
    assert (found.verdict, named(found, "downgraded"), named(found, "refused")) == ("ok", set(), set())
    assert {"conditional_create", "conditional_complete", "conditional_replace", "checksum", "range"} < named(
        found, "ok"
    )
    assert found.promises == ALL_PROMISES
    assert found.server.startswith("SeaweedFS")
    assert list(store.entries("")) == []


def test_a_local_folder_keeps_every_promise_and_is_left_clean(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    found = probe(store)
    assert found.verdict == "ok"
    assert found.promises == ALL_PROMISES
    assert list(store.entries("")) == []


def test_rclone_is_refused_because_it_ignores_the_condition(rclone: Server) -> None:
    store = open_store(fresh_url(rclone))
    found = probe(store)
    assert named(found, "refused") == {"conditional_create"}
    assert {"conditional_complete", "conditional_replace", "checksum", "metadata_case", "range"} < named(
        found, "downgraded"
    )
    with pytest.raises(Refused) as refused:
        found.require()
    [refusal] = refused.value.refusals
    assert refusal.code == "store.conditional_create"
    assert "a later create overwrote" in refusal.measured


def test_moto_is_downgraded_because_it_takes_a_wrong_checksum(moto: Server, tmp_path: Path) -> None:
    store = open_store(fresh_url(moto))
    found = ready_store(store, tmp_path)
    assert (found.verdict, named(found, "downgraded")) == ("downgraded", {"checksum"})
    [downgrade] = found.downgrades()
    assert "read back" in downgrade.meaning
    assert not store.promises.checksums
    assert store.promises.metadata


def test_a_server_that_answers_501_to_a_condition_is_refused_and_not_remembered(tmp_path: Path) -> None:
    with scripted() as server:
        server.answers.update(
            PUT=[Answer(501, "NotImplemented")],
            HEAD=[Answer(200)],
            GET=[Answer(404, "NoSuchKey")],
            DELETE=[Answer(204)],
        )
        with pytest.raises(Refused) as refused:
            ready_store(open_store(f"s3://{BUCKET}?endpoint_url={server.endpoint}"), tmp_path)
    assert refused.value.code == "store.conditional_create"
    assert "501" in refused.value.refusals[0].measured
    assert list(tmp_path.iterdir()) == []  # the server may be mended


def test_a_probe_is_made_once_per_server_and_bucket(weed: Server, tmp_path: Path) -> None:
    first = ready_store(open_store(fresh_url(weed)), tmp_path)
    [file] = tmp_path.iterdir()
    before = file.stat()
    store = open_store(fresh_url(weed))
    assert ready_store(store, tmp_path) == first
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert store.promises == ALL_PROMISES
    os.utime(file, (0, 0))  # long ago
    ready_store(store, tmp_path)
    assert file.stat().st_mtime > 0
    file.write_text("not a probe")
    assert ready_store(store, tmp_path).verdict == "ok"


def test_two_servers_do_not_share_a_probe(weed: Server, moto: Server, tmp_path: Path) -> None:
    for server in (weed, moto):
        ready_store(open_store(fresh_url(server)), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_probe_removes_what_a_killed_probe_left_but_not_a_young_ones(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    young = f"probe/{int(time.time())}-x/create"
    for key in ("probe/1000-abc/create", young, "probe/mine", "models/a"):
        store.create(key, b"x", digest(b"x"))
    probe(store)
    assert {entry.key for entry in store.entries("")} == {young, "probe/mine", "models/a"}


def test_a_store_that_cannot_be_used_at_all_is_not_a_finding(weed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfiguration, match="create it"):
        probe(open_store(f"s3://nothing-here?endpoint_url={weed.endpoint}"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(NotPermitted):
        probe(open_store(fresh_url(weed)))


class Forgetful(LocalStore):
    """A store whose promise named by the test is broken; everything else is the real thing."""

    def __init__(self, root: Path, broken: str) -> None:
        super().__init__(root)
        self.broken = broken

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        for piece in super().read(key, start, stop):
            yield piece[:-1] if self.broken == "read_back" and key.endswith("/read") else piece

    def entries(self, prefix: str):  # type: ignore[no-untyped-def]
        found = list(super().entries(prefix))
        return iter(found[1:] if self.broken == "listing" else found)

    def delete(self, key: str) -> None:
        if self.broken == "deletion":
            raise InputOutput("no right to delete", code="store.io")
        super().delete(key)


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [("read_back", "refused"), ("listing", "refused"), ("deletion", "downgraded"), ("nothing", "ok")],
)
def test_each_broken_promise_is_found_by_its_own_check(tmp_path: Path, broken: str, verdict: str) -> None:
    found = probe(Forgetful(tmp_path, broken))
    assert found.verdict == verdict
    assert {check.name for check in found.checks if check.status in ("refused", "downgraded")} == {broken} - {"nothing"}


def test_every_consequence_says_what_it_means() -> None:
    for name, (status, meaning) in CONSEQUENCES.items():
        assert finding(name, False, "x") == Check(name, status, "x", meaning)
        assert finding(name, True, "x") == Check(name, "ok", "x")
        assert len(meaning) > 30
