"""What gc takes and what it leaves, in a local folder and on SeaweedFS."""

import hashlib
import time
from pathlib import Path

from draftmill.store.garbage import DAY_S, find_garbage, remove_garbage
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME
from draftmill.store.publish import publish
from tests.store.samples import FOLDER, contents_of, publication

TWO_DAYS = 2 * DAY_S


def put(store: Store, key: str, data: bytes = b"bytes") -> None:
    store.create(key, data, hashlib.sha256(data).hexdigest())


def wasted(store: Store, later_s: float = TWO_DAYS) -> dict[str, str]:
    return {each.key: each.why for each in find_garbage(store, now=time.time() + later_s).waste}


def test_nothing_that_a_manifest_names_is_waste(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job")
    publish(store, sample.files, sample.manifest)
    for name in ("model.sig", "signatures/0123456789abcdef.sig"):
        put(store, f"{FOLDER}/{name}")
    assert wasted(store) == {}
    put(store, f"{FOLDER}/other.gguf")
    assert wasted(store) == {f"{FOLDER}/other.gguf": "no manifest names it"}


def test_a_folder_without_a_manifest_is_waste_once_it_is_old(store: Store) -> None:
    put(store, "models/amd/PARD-Tiny/0123456789ab-01234567/model.gguf")
    put(store, "packages/FastFlowLM/Tiny/0123456789ab-01234567/sub/gate.json")
    assert set(wasted(store)) == {
        "models/amd/PARD-Tiny/0123456789ab-01234567/model.gguf",
        "packages/FastFlowLM/Tiny/0123456789ab-01234567/sub/gate.json",
    }
    # The publisher may still be at work: its manifest comes last.
    assert wasted(store, later_s=DAY_S / 2) == {}


def test_a_report_without_its_record_is_waste(store: Store) -> None:
    for name in ("report.json", "report.md"):
        put(store, f"reports/measure/whole/{name}")
    put(store, "reports/measure/half/report.md")
    put(store, "reports/catalogue/half/summary.md")
    put(store, "reports/catalogue/whole/summary.json")
    put(store, "reports/catalogue/standing.json")
    put(store, "reports/somebody-elses/run/notes.txt")
    put(store, "index.json")
    assert set(wasted(store)) == {"reports/measure/half/report.md", "reports/catalogue/half/summary.md"}


def test_a_manifest_that_cannot_be_read_keeps_its_folder_and_is_said(store: Store) -> None:
    put(store, f"{FOLDER}/{NAME}", b'{"schema_version": 2}')
    put(store, f"{FOLDER}/model.gguf")
    garbage = find_garbage(store, now=time.time() + TWO_DAYS)
    assert garbage.waste == ()
    assert garbage.unread == (f"{FOLDER}/{NAME}",)


def test_what_was_found_is_removed_and_nothing_else(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job")
    publish(store, sample.files, sample.manifest)
    before = contents_of(store)
    put(store, f"{FOLDER}/other.gguf")
    put(store, "reports/measure/half/report.md")
    garbage = find_garbage(store, now=time.time() + TWO_DAYS)
    assert garbage.size == 10
    remove_garbage(store, garbage)
    assert contents_of(store) == before


def test_what_was_published_since_the_look_is_kept(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job")
    name = sample.manifest.files[0].path
    put(store, f"{FOLDER}/{name}", sample.files[name].read_bytes())
    put(store, "reports/measure/late/report.md")
    garbage = find_garbage(store, now=time.time() + TWO_DAYS)
    assert {each.key for each in garbage.waste} == {f"{FOLDER}/{name}", "reports/measure/late/report.md"}
    publish(store, sample.files, sample.manifest)
    put(store, "reports/measure/late/report.json")
    before = contents_of(store)
    remove_garbage(store, garbage)
    assert contents_of(store) == before
