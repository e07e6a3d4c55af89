"""What gc takes and what it leaves, in a local folder and on SeaweedFS."""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import Temporary
from draftmill.store.clearing import STALE_S, take
from draftmill.store.garbage import DAY_S, find_garbage, remove_garbage
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME
from draftmill.store.publish import publish
from tests.store.samples import FOLDER, Publication, contents_of, publication

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
    others = ("other.gguf", "signatures/evil.sh", "signatures/x/0123456789abcdef.sig", "signatures/0123456789abcde.sig")
    for name in others:
        put(store, f"{FOLDER}/{name}")
    assert wasted(store) == {f"{FOLDER}/{name}": "no manifest names it" for name in others}


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
    remove_garbage(store, garbage, now=time.time() + TWO_DAYS)
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
    remove_garbage(store, garbage, now=time.time() + TWO_DAYS)
    assert contents_of(store) == before


LEFT = f"{FOLDER}/PARD-Tiny-F16.gguf"


class AtEach:
    """Another store's face that does something before each delete and each create."""

    def __init__(self, store: Store, act: Callable[[str, str], None]) -> None:
        self._store, self._act = store, act

    def __getattr__(self, name: str) -> Any:
        if name in ("delete", "create"):
            return lambda key, *rest: (self._act(name, key), getattr(self._store, name)(key, *rest))[1]
        return getattr(self._store, name)


def unfinished(store: Store, folder: Path) -> Publication:
    """A publication whose publisher was killed before the manifest, days ago."""
    sample = publication(folder, big=1000)
    for name, path in sample.files.items():
        put(store, f"{FOLDER}/{name}", path.read_bytes())
    return sample


@pytest.mark.parametrize("step", range(4))
def test_a_publisher_that_goes_on_while_its_folder_is_cleared_keeps_all_of_it_or_is_told_to_repeat(
    store: Store, tmp_path: Path, step: int
) -> None:
    sample, ends, steps = unfinished(store, tmp_path / "job"), [], itertools.count()

    def publish_at_step(_: str, __: str) -> None:
        if next(steps) == step:
            try:
                ends.append(publish(store, sample.files, sample.manifest).created)
            except Temporary as error:
                ends.append(error.code)

    later = time.time() + TWO_DAYS
    racing: Any = AtEach(store, publish_at_step)
    garbage = find_garbage(store, now=later)
    removed = remove_garbage(racing, garbage, now=later)
    # Before the folder is taken the publisher is first; then two files are deleted, and last the mark.
    assert ends == ([True] if step == 0 else ["store.cleared"])
    assert {each.key for each in removed} == (set() if step == 0 else set(sample.contents()))
    assert publish(store, sample.files, sample.manifest).created is (step > 0)
    assert sample.contents().items() <= contents_of(store).items()


def test_a_sweep_that_comes_while_a_publisher_goes_on_takes_nothing_that_it_needs(store: Store, tmp_path: Path) -> None:
    """The other way round: at each of the publisher's steps everything old is swept."""
    for step in range(4):
        sample, steps = unfinished(store, tmp_path / str(step)), itertools.count()

        def sweep_at_step(_: str, __: str, steps: Iterator[int] = steps, step: int = step) -> None:
            if next(steps) == step:
                later = time.time() + TWO_DAYS
                remove_garbage(store, find_garbage(store, now=later), now=later)

        racing: Any = AtEach(store, sweep_at_step)
        try:
            publish(racing, sample.files, sample.manifest)
        except Temporary:  # its files were gone when it looked at them: nothing was committed
            assert publish(store, sample.files, sample.manifest).created
        assert next(steps) > step
        assert sample.contents().items() <= contents_of(store).items()
        for key in contents_of(store):
            store.delete(key)


def test_a_killed_sweep_is_gone_on_with_an_hour_later(store: Store, tmp_path: Path) -> None:
    sample = unfinished(store, tmp_path / "job")

    def die(verb: str, key: str) -> None:
        if verb == "delete" and key == LEFT:
            raise KeyboardInterrupt

    dying: Any = AtEach(store, die)
    later = time.time() + TWO_DAYS
    with pytest.raises(KeyboardInterrupt):
        remove_garbage(dying, find_garbage(store, now=later), now=later)
    with pytest.raises(Temporary, match="draftmill gc"):
        publish(store, sample.files, sample.manifest)
    soon = time.time() + STALE_S / 2
    assert find_garbage(store, now=soon).waste == ()
    assert not take(store, f"{FOLDER}/{NAME}", now=soon)
    late = time.time() + STALE_S + 60
    garbage = find_garbage(store, now=late)
    assert f"{FOLDER}/{NAME}" in {each.key for each in garbage.waste}
    remove_garbage(store, garbage, now=late)
    assert contents_of(store) == {}
    assert publish(store, sample.files, sample.manifest).created


def test_pages_and_the_index_and_signatures_are_nobodys_waste(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=1000)
    publish(store, sample.files, sample.manifest)
    kept = ["index.json", "index.html", "models/amd/PARD-Tiny/index.html", f"{FOLDER}/model.sig"]
    for key in [*kept, f"{FOLDER}/signatures/0123456789abcdef.sig", "packages/fast/Small/index.html"]:
        put(store, key)
    assert wasted(store) == {}
