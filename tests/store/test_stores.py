"""What every kind of store promises, held against a local folder and SeaweedFS."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftmill.outcome import InputOutput, Refused, Temporary
from draftmill.store.interface import Store
from draftmill.store.reading import fetch, get, sha256_of
from tests.store.samples import BIG, digest, noise


def test_what_is_created_comes_back_whole_and_in_ranges(store: Store) -> None:
    data = noise(10_000)
    creation = store.create("models/x/a.bin", data, digest(data))
    assert creation.created
    assert get(store, "models/x/a.bin") == data
    assert b"".join(store.read("models/x/a.bin", 10, 20)) == data[10:20]
    assert b"".join(store.read("models/x/a.bin", 9_990)) == data[9_990:]
    assert b"".join(store.read("models/x/a.bin", 9_990, 20_000)) == data[9_990:]
    assert b"".join(store.read("models/x/a.bin", 5, 5)) == b""
    assert b"".join(store.read("models/x/a.bin", 10_000)) == b""


def test_a_head_tells_size_and_sha256_and_none_where_nothing_is(store: Store) -> None:
    store.create("a", b"abc", digest(b"abc"))
    head = store.head("a")
    assert head is not None
    # sha256("abc") as FIPS 180-2 gives it
    assert (head.size, head.sha256) == (3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert store.head("b") is None
    assert store.head("a/b") is None


def test_an_empty_object_is_an_object(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    store.create("e1", b"", digest(b""))
    store.create("e2", tmp_path / "empty", digest(b""))
    assert [(entry.key, entry.size) for entry in store.entries("")] == [("e1", 0), ("e2", 0)]


def test_a_second_create_does_not_overwrite(store: Store) -> None:
    store.create("a", b"first", digest(b"first"))
    creation = store.create("a", b"second", digest(b"second"))
    assert not creation.created
    assert creation.head.sha256 == digest(b"first")
    assert get(store, "a") == b"first"


def test_of_many_creators_one_wins(store: Store) -> None:
    bodies = [f"body {number}".encode() for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        creations = list(pool.map(lambda body: store.create("deep/er/race", body, digest(body)), bodies))
    [winner] = [body for body, creation in zip(bodies, creations, strict=True) if creation.created]
    assert get(store, "deep/er/race") == winner
    assert {creation.head.sha256 for creation in creations} == {digest(winner)}


def test_a_big_file_goes_up_in_pieces_that_add_up(store: Store, tmp_path: Path) -> None:
    data = noise(BIG + 17)
    (tmp_path / "big").write_bytes(data)
    steps: list[tuple[int, int]] = []
    creation = store.create("big", tmp_path / "big", digest(data), lambda _, done, total: steps.append((done, total)))
    assert creation.created
    assert steps[-1] == (BIG + 17, BIG + 17)
    assert len(steps) >= 3
    assert sha256_of(store, "big") == digest(data)
    assert not store.create("big", tmp_path / "big", digest(data)).created


@pytest.mark.parametrize("size", [100, BIG])
def test_a_body_with_another_sha256_is_not_created(store: Store, tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(noise(size))
    with pytest.raises(InputOutput) as error:
        store.create("a", tmp_path / "file", digest(b"other"))
    assert error.value.code == "store.source_differs"
    assert store.head("a") is None
    assert list(store.entries("")) == []


def test_a_source_file_that_is_not_there_is_said_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputOutput, match="No such file"):
        store.create("a", tmp_path / "nothing", digest(b""))


def test_replace_needs_the_newest_etag(store: Store) -> None:
    first = store.replace("index.json", b"1", None)
    second = store.replace("index.json", b"2", first)
    with pytest.raises(Temporary) as error:
        store.replace("index.json", b"3", first)
    assert error.value.code == "store.changed"
    with pytest.raises(Temporary):
        store.replace("index.json", b"3", None)
    assert get(store, "index.json") == b"2"
    head = store.head("index.json")
    assert head is not None
    assert (head.etag, head.sha256) == (second, digest(b"2"))


def test_replacing_what_is_gone_is_a_change(store: Store) -> None:
    etag = store.replace("index.json", b"1", None)
    store.delete("index.json")
    with pytest.raises(Temporary):
        store.replace("index.json", b"2", etag)


def test_of_many_replacers_none_is_lost(store: Store) -> None:
    store.replace("index.json", b"", None)

    def add(letter: str) -> None:
        while True:
            head = store.head("index.json")
            assert head is not None
            try:
                store.replace("index.json", get(store, "index.json") + letter.encode(), head.etag)
                return
            except Temporary:
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, "abcd"))
    assert sorted(get(store, "index.json")) == sorted(b"abcd")


def test_a_listing_is_by_prefix_and_in_order(store: Store) -> None:
    for key in ["models/b/x", "models/a/x", "models/a-b", "index.json", "models/a/y"]:
        store.create(key, key.encode(), digest(key.encode()))
    assert [entry.key for entry in store.entries("models/a")] == ["models/a-b", "models/a/x", "models/a/y"]
    assert [entry.key for entry in store.entries("models/a/")] == ["models/a/x", "models/a/y"]
    assert len(list(store.entries(""))) == 5
    assert list(store.entries("nothing/")) == []


def test_deleting_is_for_good_and_never_an_error(store: Store) -> None:
    store.create("a/b/c", b"x", digest(b"x"))
    store.create("a/d", b"x", digest(b"x"))
    store.delete("a/b/c")
    store.delete("a/b/c")
    assert [entry.key for entry in store.entries("")] == ["a/d"]


def test_a_missing_object_is_named(store: Store) -> None:
    with pytest.raises(InputOutput, match="nothing/here") as error:
        get(store, "nothing/here")
    assert error.value.code == "store.missing"


def test_every_verb_refuses_a_bad_key(store: Store) -> None:
    for verb in (store.head, store.delete, store.where, lambda key: get(store, key)):
        with pytest.raises(Refused):
            verb("../outside")
    with pytest.raises(Refused):
        store.create("../outside", b"", digest(b""))
    with pytest.raises(Refused):
        store.replace("a/", b"", None)
    with pytest.raises(Refused):
        list(store.entries("../"))


def test_a_fetched_file_appears_only_when_it_is_right(store: Store, tmp_path: Path) -> None:
    store.create("a", b"abc", digest(b"abc"))
    fetch(store, "a", tmp_path / "good", sha256=digest(b"abc"), size=3)
    assert (tmp_path / "good").read_bytes() == b"abc"
    with pytest.raises(InputOutput) as error:
        fetch(store, "a", tmp_path / "bad", sha256=digest(b"other"), size=3)
    assert error.value.code == "store.damaged"
    assert not (tmp_path / "bad").exists()
    assert not list(tmp_path.glob("*.partial"))
