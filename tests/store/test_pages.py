"""The pages of a store: they say what index.json says, also when several write at once, and nothing sweeps them."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import Temporary
from draftmill.reports.measurement_json import report_json
from draftmill.store import contention
from draftmill.store.garbage import find_garbage
from draftmill.store.index import index_of, read_index, update_index
from draftmill.store.index_measurement import index_measurement
from draftmill.store.index_rebuilding import rebuild_index
from draftmill.store.index_row import row_at
from draftmill.store.interface import Store
from draftmill.store.local import LocalStore
from draftmill.store.pages import page_key, publish_pages
from draftmill.store.reading import get
from tests.store.drafters import contents, publish_drafter, refused_row
from tests.store.samples import source
from tests.support.measured import speed

FILES = contents(["Q4_K_M"], size=500)
SAME = "models/amd/Same/index.html"


class Hooked:
    """A store that lets somebody else work in between, once: after a read, before a replacement."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hooks: dict[tuple[str, str], Callable[[], object]] = {}
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _before(self, verb: str, key: str) -> None:
        self.calls.append((verb, key))
        if hook := self.hooks.pop((verb, key), None):
            hook()

    def replace(self, key: str, data: bytes, if_match: str | None) -> str:
        self._before("replace", key)
        return self._store.replace(key, data, if_match)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        found = list(self._store.read(key, start, stop))
        self._before("read", key)  # so that a reader holds what was there before the hook
        return iter(found)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def text(store: Store, key: str = "index.html") -> str:
    return get(store, key).decode()


def entries(store: Store) -> list[str]:
    return re.findall(r'<tr><th scope="row"><a href="[^"]*">([^<]*)</a>', text(store))


def shows(store: Store) -> str:
    """The digest of the index.json that index.html says it shows."""
    found = re.search(r'<meta name="draftmill-index" content="(\w+)">', text(store))
    assert found
    return found[1]


def digest(store: Store) -> str:
    return hashlib.sha256(get(store, "index.json")).hexdigest()


def add(store: Store, *names: str) -> None:
    """What a run does at its end."""
    update_index(store, [refused_row(name) for name in names])
    publish_pages(store, {("model", name) for name in names})


def test_a_store_gets_its_table_and_a_page_for_each_drafter(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "a", files=FILES)
    update_index(store, [row_at(store, manifest.key), refused_row("amd/Gumiho")])
    publish_pages(store)
    assert entries(store) == ["amd/Gumiho", "amd/PARD-Tiny"]
    assert shows(store) == digest(store)
    assert "gumiho.no_config" in text(store, "models/amd/Gumiho/index.html")
    page = text(store, "models/amd/PARD-Tiny/index.html")
    assert manifest.files[0].sha256 in page
    assert 'href="../../../models/amd/PARD-Tiny/0123456789ab-feedface/manifest.json"' in page


def test_without_an_index_there_are_no_pages(store: Store) -> None:
    publish_pages(store)
    assert list(store.entries("")) == []


def test_racing_runs_leave_pages_of_all_that_they_found(store: Store) -> None:
    names = [f"amd/D{number}" for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: add(store, name), names))
    assert shows(store) == digest(store)
    assert entries(store) == names
    assert all("gumiho.no_config" in text(store, f"models/{name}/index.html") for name in names)


@pytest.mark.parametrize(("verb", "key"), [("read", "index.json"), ("replace", "index.html")])
def test_a_table_made_from_an_older_index_does_not_replace_a_newer_one(local: LocalStore, verb: str, key: str) -> None:
    """Another run comes in between while the first holds what it read, or is about to write."""
    add(local, "amd/First")
    slow = Hooked(local)
    update_index(local, [refused_row("amd/Slow")])
    slow.hooks[verb, key] = lambda: add(local, "amd/Quick")
    publish_pages(slow, [])
    assert entries(local) == ["amd/First", "amd/Quick", "amd/Slow"]
    assert shows(local) == digest(local)


@pytest.mark.parametrize(("verb", "key"), [("read", "index.json"), ("replace", SAME)])
def test_a_drafters_page_made_from_an_older_index_does_not_replace_a_newer_one(
    local: LocalStore, verb: str, key: str
) -> None:
    add(local, "amd/Same")

    def other_run() -> None:
        update_index(local, [refused_row("amd/Same", recipe="cd" * 32)])
        publish_pages(local, [("model", "amd/Same")])

    update_index(local, [refused_row("amd/Same", recipe="ab" * 32)])
    slow = Hooked(local)
    slow.hooks[verb, key] = other_run
    publish_pages(slow, [("model", "amd/Same")])
    assert all(f"<code>{recipe}</code>" in text(local, SAME) for recipe in ("abababab", "cdcdcdcd"))


def test_a_page_that_a_killed_run_left_behind_is_mended_by_the_next(local: LocalStore) -> None:
    add(local, "amd/First")
    update_index(local, [refused_row("amd/Killed")])
    assert shows(local) != digest(local)
    publish_pages(local)
    assert shows(local) == digest(local)
    assert entries(local) == ["amd/First", "amd/Killed"]


def test_a_page_that_says_the_same_is_not_written_again(local: LocalStore) -> None:
    add(local, "amd/A", "amd/B")
    update_index(local, [refused_row("amd/B", family="PARD")])
    hooked = Hooked(local)
    publish_pages(hooked)
    assert [key for verb, key in hooked.calls if verb == "replace"] == ["models/amd/B/index.html", "index.html"]


def test_pages_that_others_change_each_time_are_given_up_with_what_to_do(local: LocalStore) -> None:
    add(local, "amd/A")
    pauses: list[float] = []

    class Contended(Hooked):
        def replace(self, key: str, data: bytes, if_match: str | None) -> str:
            head = local.head(key)
            local.replace(key, f"<html>{len(pauses)}".encode(), head.etag if head else None)
            return local.replace(key, data, if_match)

    update_index(local, [refused_row("amd/B")])
    with pytest.raises(Temporary, match="read it again and repeat"):
        publish_pages(Contended(local), [], pause=pauses.append)
    assert len(pauses) == contention.TRIES - 1


def test_a_published_report_gets_into_the_rows_of_its_draft_and_onto_their_pages(
    local: LocalStore, tmp_path: Path
) -> None:
    manifest = publish_drafter(local, tmp_path / "a", files=FILES)
    update_index(local, [row_at(local, manifest.key), refused_row("amd/Other")])
    record = speed()
    draft = next(file.sha256 for file in manifest.files if file.role == "model")
    for run, sha256, rows in (("ours", draft, 1), ("strangers", "9" * 64, 0)):
        report = record.model_copy(update={"draft": record.draft.model_copy(update={"sha256": sha256})})
        data = report_json(report).encode()
        key = f"reports/measure/{run}/report.json"
        local.create(key, data, hashlib.sha256(data).hexdigest())
        assert index_measurement(local, key) == rows
    stored = read_index(local)
    assert stored is not None
    [found] = [row for row in stored.index.rows if row.measurements]
    assert (found.entry, [each.report for each in found.measurements]) == (
        "amd/PARD-Tiny",
        ["reports/measure/ours/report.json"],
    )
    assert "1.51x" in text(local)
    assert "1.510x" in text(local, "models/amd/PARD-Tiny/index.html")


def test_no_page_is_garbage(local: LocalStore, tmp_path: Path) -> None:
    manifest = publish_drafter(local, tmp_path / "a", files=FILES)
    update_index(local, [row_at(local, manifest.key), refused_row()])
    publish_pages(local)
    assert find_garbage(local, now=time.time() + 1e9).waste == ()


def test_the_page_of_a_drafter_that_is_gone_goes_with_it(local: LocalStore, tmp_path: Path) -> None:
    manifest = publish_drafter(local, tmp_path / "a", files=FILES)
    update_index(local, [row_at(local, manifest.key), refused_row("amd/Gumiho")])
    publish_pages(local)
    rebuild_index(local, anew=True)
    publish_pages(local)
    assert local.head("models/amd/Gumiho/index.html") is None
    assert local.head("models/amd/PARD-Tiny/index.html") is not None
    assert local.head(manifest.key) is not None


def test_a_name_that_no_store_can_keep_is_in_the_table_only(local: LocalStore) -> None:
    assert page_key("model", "x/..") is None
    update_index(local, [refused_row("x/<b>"), refused_row("amd/A")])
    publish_pages(local)
    assert "<span>x/&lt;b&gt;</span>" in text(local)
    assert sorted(entry.key for entry in local.entries("models/")) == ["models/amd/A/index.html"]


def test_a_manifest_that_cannot_be_read_is_told_on_the_page(local: LocalStore, tmp_path: Path) -> None:
    manifest = publish_drafter(local, tmp_path / "a", files=FILES)
    lost = publish_drafter(local, tmp_path / "b", "amd/Lost", files=FILES, source=source(repo="amd/Lost"))
    update_index(local, [row_at(local, manifest.key), row_at(local, lost.key)])
    head = local.head(manifest.key)
    assert head is not None
    local.replace(manifest.key, b"{}", head.etag)
    local.delete(lost.key)
    publish_pages(local)
    assert "not a manifest of schema version 1" in text(local, "models/amd/PARD-Tiny/index.html")
    assert "It is missing or damaged" in text(local, "models/amd/Lost/index.html")


def test_the_same_index_gives_the_same_bytes(local: LocalStore, tmp_path: Path) -> None:
    other = LocalStore(tmp_path / "other")
    index = index_of([refused_row("amd/A"), refused_row("amd/B")])
    for store in (local, other):
        store.replace("index.json", index.to_bytes(), None)
        publish_pages(store)
    assert {e.key: text(local, e.key) for e in local.entries("")} == {
        e.key: text(other, e.key) for e in other.entries("")
    }
    stored = read_index(local)
    assert stored is not None
    assert stored.sha256 == shows(local)
