"""What the runs know of drafters: kept by line, merged between two writers, and refused where it is cut."""

import threading
from pathlib import Path
from typing import Any

import pytest

from draftmill.catalogue.standing import KEY, Standing, differences, read_standings, update_standings
from draftmill.outcome import Refused
from draftmill.store.local import LocalStore


def standing(**changed: Any) -> Standing:
    fields = {
        "verdict": "pass",
        "sentence": "published",
        "commit": "ab" * 20,
        "family": "PARD",
        "route": "gguf",
        "rules": "r",
        "made_of": {"commit": "ab" * 6},
        "at": "2026-01-01T00:00:00Z",
        "run": "1",
        "seconds": 12.5,
        "size": 100,
    }
    return Standing(**{**fields, **changed})


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert read_standings(store).get("amd/x") is None
    pair = {"target": "a/b", "verdict": "compatible", "off_pair": True}
    update_standings(store, {"amd/x": standing(), "amd/y": standing(verdict="refused", code="a.b", pairs=(pair,))})
    read = read_standings(store)
    assert len(read) == 2
    assert read.get("amd/x") == standing()
    found = read.get("amd/y")
    assert found and (found.verdict, found.code, list(found.pairs)) == ("refused", "a.b", [pair])
    assert read.get("amd/z") is None


def test_what_only_some_drafters_have_is_kept_too(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    full = standing(listed="cd" * 32, files=("a", "b"), unreached=("x/y",))
    update_standings(store, {"amd/x": full, "amd/y": standing()})
    read = read_standings(store)
    assert read.get("amd/x") == full
    assert (full.seen, standing().seen) == ("cd" * 32, "ab" * 20)


def test_a_line_of_before_those_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    whole = update_standings(store, {"amd/x": standing()}).to_bytes()
    older = whole.replace(b', "listed": "", "files": [], "unreached": []', b"")
    assert older != whole
    store.replace(KEY, older, read_standings(store).etag)
    assert read_standings(store).get("amd/x") == standing()


def test_a_later_run_replaces_its_own_lines_alone_and_keeps_seconds_that_it_did_not_measure(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    update_standings(store, {"amd/x": standing(), "amd/y": standing()})
    update_standings(store, {"amd/x": standing(run="2", seconds=0.0)})
    read = read_standings(store)
    found = read.get("amd/x")
    assert found and (found.run, found.seconds) == ("2", 12.5)
    assert read.get("amd/y") == standing()


def test_writers_at_once_all_find_their_lines(tmp_path: Path) -> None:
    def write(number: int) -> None:
        update_standings(LocalStore(tmp_path), {f"amd/{number}": standing(run=str(number))})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = read_standings(LocalStore(tmp_path))
    assert [getattr(read.get(f"amd/{number}"), "run", None) for number in range(6)] == list("012345")


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole[: whole.rindex(b'["amd')],
        lambda whole: whole.replace(b'"format": 1', b'"format": 2'),
        lambda whole: b"",
    ],
)
def test_a_file_that_is_cut_or_of_another_version_is_refused(tmp_path: Path, change: Any) -> None:
    store = LocalStore(tmp_path)
    whole = update_standings(store, {"amd/x": standing(), "amd/y": standing()}).to_bytes()
    store.replace(KEY, change(whole), read_standings(store).etag)
    with pytest.raises(Refused) as caught:
        read_standings(store)
    assert caught.value.code == "catalogue.standing"


def test_differences_are_named_in_order() -> None:
    assert differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == ["b", "c", "d"]
