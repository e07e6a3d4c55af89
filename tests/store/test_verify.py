"""Each way in which a pulled folder is not what was published, and that nothing else says so."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill.outcome import InputOutput, Refused
from draftmill.store.local import LocalStore
from draftmill.store.pull import RECORD, pull
from draftmill.store.verify import Verification, require, verify
from tests.store.drafters import contents, model_name, publish_drafter

F16, Q4 = model_name("F16"), model_name("Q4_K_M")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def pulled(store: LocalStore, tmp_path: Path) -> Path:
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    pull(store, manifest.key, tmp_path / "out")
    return tmp_path / "out"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def link_to_a_copy(folder: Path) -> None:
    os.rename(folder / F16, folder.parent / "copy")
    (folder / F16).symlink_to(folder.parent / "copy")


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a bit of a model": ("verify.bytes_differ", lambda folder: flip(folder / F16)),
    "a model cut short": ("verify.bytes_differ", lambda folder: (folder / F16).write_bytes(b"short")),
    "a bit of a licence": ("verify.bytes_differ", lambda folder: flip(folder / "LICENSE")),
    "a model gone": ("verify.missing", lambda folder: (folder / Q4).unlink()),
    "a link in place of a file": ("verify.missing", link_to_a_copy),
    "a file more": ("verify.unlisted", lambda folder: (folder / "more.gguf").write_bytes(b"x")),
    "a hidden file more": ("verify.unlisted", lambda folder: (folder / ".more").write_bytes(b"x")),
    "a broken link more": ("verify.unlisted", lambda folder: (folder / "more").symlink_to("nowhere")),
    "a pull that did not finish": (
        "verify.unfinished",
        lambda folder: (folder / f".{F16}.01234567.partial").write_bytes(b"x"),
    ),
    "other provenance": ("verify.provenance_differs", lambda folder: flip(folder / "provenance.intoto.json")),
    "other notices": ("verify.notices_differ", lambda folder: flip(folder / "draftmill-notices.txt")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_gives_one_finding(pulled: Path, change: str) -> None:
    assert verify(pulled).findings == ()
    code, make = CHANGES[change]
    make(pulled)
    found = verify(pulled)
    assert [finding.code for finding in found.findings] == [code]
    with pytest.raises(Refused):
        require(found)


def test_a_manifest_that_was_changed_with_its_files_is_seen_beside_the_published_one(
    pulled: Path, store: LocalStore
) -> None:
    """Whoever writes all of it makes a folder that is right in itself."""
    from draftmill.store.manifest import read_manifest
    from draftmill.store.provenance import statement
    from tests.store.samples import digest

    manifest = read_manifest((pulled / "manifest.json").read_bytes(), "")
    (pulled / F16).write_bytes(b"evil")
    files = tuple(
        file.model_copy(update={"size": 4, "sha256": digest(b"evil")}) if file.path == F16 else file
        for file in manifest.files
    )
    forged = manifest.model_copy(update={"files": files})
    (pulled / "manifest.json").write_bytes(forged.to_bytes())
    (pulled / "provenance.intoto.json").write_bytes(statement(forged, forged.to_bytes()))
    assert verify(pulled).findings == ()
    assert [finding.code for finding in verify(pulled, store=store).findings] == ["verify.manifest_differs"]


def test_every_finding_is_told_at_once(pulled: Path) -> None:
    flip(pulled / F16)
    (pulled / Q4).unlink()
    (pulled / "more").write_bytes(b"x")
    codes = [finding.code for finding in verify(pulled).findings]
    assert sorted(codes) == ["verify.bytes_differ", "verify.missing", "verify.unlisted"]


def test_a_pull_mends_what_verify_finds(pulled: Path, store: LocalStore) -> None:
    flip(pulled / F16)
    (pulled / Q4).unlink()
    flip(pulled / "draftmill-notices.txt")
    pull(store, verify(pulled).manifest.key, pulled)
    assert verify(pulled).findings == ()


def test_what_has_to_be_there_is_what_was_pulled_unless_more_is_asked_for(store: LocalStore, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    pull(store, manifest.key, tmp_path / "out", ["F16"])
    assert verify(tmp_path / "out").findings == ()
    missing = verify(tmp_path / "out", ["Q4_K_M"]).findings
    assert {Path(finding.where).name for finding in missing} == {Q4, Q4.replace(".gguf", ".check.json")}
    (tmp_path / "out" / RECORD).unlink()
    assert {finding.code for finding in verify(tmp_path / "out").findings} == {"verify.missing"}


def test_a_published_folder_of_a_local_store_verifies(store: LocalStore, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    found: Verification = verify(Path(store.where(manifest.folder)))
    assert found.findings == ()
    assert len(found.verified) == len(contents())


def test_a_folder_without_a_manifest_has_no_verdict(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputOutput) as error:
            verify(path)
        assert error.value.code == "verify.no_manifest"
