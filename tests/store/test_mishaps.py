"""What goes wrong outside of us, at a real server and in a folder.

Nothing is lost, nothing is half there, a sentence says what to do, and when it was done the same call completes.
"""

import datetime
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import BadConfiguration, InputOutput, MillError, NotPermitted, Temporary
from draftmill.store import partial_file
from draftmill.store.index import read_index, update_index
from draftmill.store.interface import Promises, Store
from draftmill.store.local import LocalStore
from draftmill.store.probe import ready_store
from draftmill.store.publish import publish
from draftmill.store.pull import pull
from draftmill.store.reading import get
from draftmill.store.s3 import S3Store
from draftmill.store.verify import verify
from tests.store.conftest import fresh_url, open_s3
from tests.store.disks import disk, enlarge
from tests.store.drafters import MIB, contents, publish_drafter, refused_row
from tests.store.samples import BIG, FOLDER, Publication, contents_of, digest, noise, publication
from tests.support import s3_servers
from tests.support.s3_servers import BUCKET, Server
from tests.support.s3_sessions import Session, session_of
from tests.support.waiting import until

MANIFEST = f"{FOLDER}/manifest.json"
ALL_PROMISES = Promises(conditional_complete=True, conditional_replace=True, checksums=True, metadata=True)


def check_nothing_is_half_there(store: Store, sample: Publication) -> None:
    left = contents_of(store)
    assert MANIFEST not in left
    assert left.items() <= sample.contents().items()


def check_completes(store: Store, sample: Publication) -> None:
    assert publish(store, sample.files, sample.manifest).created
    assert sample.contents().items() <= contents_of(store).items()


# A session that ends


@pytest.fixture
def session(weed: Server, monkeypatch: pytest.MonkeyPatch) -> Session:
    found = session_of(weed.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", found.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", found.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", found.token)
    return found


def take_token(store: S3Store, token: str) -> None:
    """From the next request on."""
    credentials: Any = store.client
    credentials._request_signer._credentials.token = token


def test_a_session_that_ends_while_a_file_goes_up_is_told_and_a_new_one_goes_on(
    weed: Server, session: Session, tmp_path: Path
) -> None:
    sample = publication(tmp_path / "job", big=BIG)
    store = open_s3(fresh_url(weed))
    store.promises = ALL_PROMISES
    take_token(store, session.signed_anew)
    store.note_uploads(tmp_path / "notes")

    def end(*_: object) -> None:
        take_token(store, session.ended)

    with pytest.raises(NotPermitted, match=r"expired.*AWS_SESSION_TOKEN.*repeat") as error:
        publish(store, sample.files, sample.manifest, end)
    assert error.value.code == "store.not_permitted"
    assert session.secret_key not in str(error.value)
    # Every verb says so, those too whose answer has no body.
    for verb in (store.identity, lambda: store.head("a"), lambda: list(store.entries("")), lambda: get(store, "a")):
        with pytest.raises(NotPermitted, match="expired"):
            verb()
    take_token(store, session.token)
    check_nothing_is_half_there(store, sample)
    check_completes(store, sample)


def test_a_session_that_ends_while_files_come_is_told_and_a_new_one_goes_on(
    weed: Server, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_file, "PART", MIB)
    store = open_s3(fresh_url(weed))
    manifest = publish_drafter(store, tmp_path / "source", files=contents(["F16"], size=12 * MIB))

    def end(_: str, done: int, __: int) -> None:
        if done > 2 * MIB:
            take_token(store, session.ended)

    with pytest.raises(NotPermitted, match="expired"):
        pull(store, manifest.key, tmp_path / "out", progress=end, threads=2)
    assert not (tmp_path / "out" / "manifest.json").exists()
    take_token(store, session.token)
    assert pull(store, manifest.key, tmp_path / "out").kept >= 2 * MIB
    assert verify(tmp_path / "out").findings == ()


# A clock that is wrong


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wrong_clock_is_told_by_every_verb_and_a_right_one_completes(
    weed: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    sample = publication(tmp_path / "job", big=BIG)
    store = open_s3(fresh_url(weed))
    store.promises = ALL_PROMISES
    monkeypatch.setattr("botocore.auth.get_current_datetime", shifted(hours))
    verbs: list[Callable[[], object]] = [
        store.identity,
        lambda: store.head(MANIFEST),
        lambda: get(store, MANIFEST),
        lambda: list(store.entries("")),
        lambda: store.create("a", b"x", digest(b"x")),
        lambda: store.replace("a", b"x", None),
        lambda: store.delete("a"),
        lambda: publish(store, sample.files, sample.manifest),
        lambda: pull(store, MANIFEST, tmp_path / "out"),
        lambda: ready_store(store, tmp_path / "probes"),
    ]
    for verb in verbs:
        with pytest.raises(BadConfiguration, match=r"clock.*Set the wrong one and repeat") as error:
            verb()
        assert error.value.code == "store.clock"
    monkeypatch.undo()
    assert list(store.entries("")) == []
    check_completes(store, sample)


def shifted(hours: int) -> Callable[..., datetime.datetime]:
    from botocore.compat import get_current_datetime

    return lambda *given, **named: get_current_datetime(*given, **named) + datetime.timedelta(hours=hours)


# Room that runs out


@pytest.fixture
def full_server(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """SeaweedFS on a disk of 64 MiB."""
    with disk(tmp_path / "served", mib=64) as folder, s3_servers.weed(folder) as server:
        yield server, folder


def test_a_bucket_that_fills_up_is_told_and_completed_when_there_is_room(
    full_server: tuple[Server, Path], tmp_path: Path
) -> None:
    server, folder = full_server
    earlier = publication(tmp_path / "earlier", big=20 * MIB, entry="amd/Earlier")
    sample = publication(tmp_path / "job", big=60 * MIB)
    store = open_s3(server.url)
    ready_store(store, tmp_path / "probes")
    publish(store, earlier.files, earlier.manifest)
    before = contents_of(store)
    with pytest.raises(Temporary, match=r"repeat later.*look at the server.*full") as error:
        publish(store, sample.files, sample.manifest)
    assert error.value.code == "store.temporary"
    left = contents_of(store)
    assert left.items() <= {**before, **sample.contents()}.items()
    assert before.items() <= left.items()
    assert MANIFEST not in left
    enlarge(folder, mib=512)

    def is_created() -> bool:
        with suppress(Temporary):
            return publish(store, sample.files, sample.manifest).created
        return False

    # SeaweedFS looks at its disk every few seconds.
    until(is_created, "it is published", every_s=0.5)
    assert sample.contents().items() <= contents_of(store).items()


def test_a_folder_that_fills_up_is_told_and_completed_when_there_is_room(tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=6 * MIB)
    with disk(tmp_path / "disk", mib=8) as folder:
        (folder / "somebody's").write_bytes(noise(3 * MIB))
        store = LocalStore(folder / "store")
        with pytest.raises(InputOutput, match="free some space there and repeat") as error:
            publish(store, sample.files, sample.manifest)
        assert error.value.code == "store.full"
        check_nothing_is_half_there(store, sample)
        assert store.sweep() == []
        (folder / "somebody's").unlink()
        check_completes(store, sample)


# Two publishers, each a process of its own


def test_two_processes_that_publish_one_recipe_commit_once_and_lose_no_row(store: Store, tmp_path: Path) -> None:
    samples = [publication(tmp_path / str(number), big=BIG) for number in range(2)]
    if isinstance(store, S3Store):
        store.client.close()  # a child must not inherit the connections; the client opens new ones
    context = multiprocessing.get_context("fork")
    start, ends = context.Barrier(2), context.SimpleQueue()

    def run(number: int) -> None:
        store.note_uploads(tmp_path / "notes")
        start.wait(60)
        try:
            created: bool | str = publish(store, samples[number].files, samples[number].manifest).created
        except MillError as error:
            created = str(error)
        for day in range(5):
            update_index(store, [refused_row(f"amd/Gumiho-{number}-{day}")])
        ends.put(created)

    children = [context.Process(target=run, args=(number,)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0]
    assert sorted(ends.get() for _ in children) == [False, True]
    assert samples[0].contents().items() <= contents_of(store).items()
    index = read_index(store)
    assert index is not None
    assert {row.entry for row in index.index.rows} == {f"amd/Gumiho-{n}-{day}" for n in range(2) for day in range(5)}
    if isinstance(store, S3Store):
        pending = store.client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{store.prefix}/")
        assert pending.get("Uploads", []) == []
