"""Signatures of publications: made and verified here, and by the stock tool, which knows nothing of this code."""

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from draftmill.outcome import Refused
from draftmill.store.interface import Store
from draftmill.store.local import LocalStore
from draftmill.store.manifest import Manifest
from draftmill.store.provenance import statement
from draftmill.store.publish import publish
from draftmill.store.pull import pull
from draftmill.store.sign import sign
from draftmill.store.verify import verify
from draftmill.store.verify_published import verify_published
from tests.store.drafters import START, contents, model_name, publish_drafter
from tests.store.samples import FOLDER, digest, publication
from tests.support.keys import KeyPair, key_pair

F16, Q4 = model_name("F16"), model_name("Q4_K_M")


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return key_pair(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return key_pair(tmp_path_factory.mktemp("keys"), "other", "secp384r1")


@pytest.fixture
def manifest(store: Store, tmp_path: Path) -> Manifest:
    return publish_drafter(store, tmp_path / "source", files=contents(size=1000))


@pytest.fixture
def pulled(store: Store, manifest: Manifest, pair: KeyPair, tmp_path: Path) -> Path:
    """A signed publication, in a folder."""
    sign(store, manifest.key, pair.private)
    pull(store, manifest.key, tmp_path / "out", public_key=pair.public)
    return tmp_path / "out"


def stock_command(*arguments: str | Path) -> int:
    line = [sys.executable, "-m", "model_signing", *map(str, arguments)]
    return subprocess.run(line, check=False, capture_output=True, timeout=120).returncode


def stock_sign(folder: Path, pair: KeyPair) -> None:
    """As the stock command does: it hashes what lies there."""
    from model_signing import hashing, signing

    hashed = hashing.Config().set_ignored_paths(paths=["model.sig"])
    config = signing.Config().use_elliptic_key_signer(private_key=pair.private).set_hashing_config(hashed)
    config.sign(folder, folder / "model.sig")


def stock_verifies(folder: Path, signature: str, pair: KeyPair) -> bool:
    from model_signing import verifying

    try:
        verifying.Config().use_elliptic_key_verifier(public_key=pair.public).verify(folder, folder / signature)
    except ValueError:
        return False
    return True


def codes(folder: Path, pair: KeyPair) -> list[str]:
    return sorted({finding.code for finding in verify(folder, public_key=pair.public).findings})


def refused(store: Store, manifest: Manifest, folder: Path, pair: KeyPair) -> list[str]:
    with pytest.raises(Refused) as error:
        pull(store, manifest.key, folder, public_key=pair.public)
    assert not folder.exists()
    return [refusal.code for refusal in error.value.refusals]


def test_a_signed_publication_verifies_here_and_with_the_stock_tool(
    pulled: Path, pair: KeyPair, other: KeyPair
) -> None:
    assert verify(pulled, public_key=pair.public).findings == ()
    assert stock_verifies(pulled, "model.sig", pair)
    assert not stock_verifies(pulled, "model.sig", other)
    (pulled / "more.gguf").write_bytes(b"x")
    assert not stock_verifies(pulled, "model.sig", pair)


def test_what_is_signed_is_every_file_the_manifest_and_the_provenance(pulled: Path, manifest: Manifest) -> None:
    bundle = json.loads((pulled / "model.sig").read_bytes())
    predicate = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))["predicate"]
    signed = {each["name"]: each["digest"] for each in predicate["resources"]}
    names = {*contents(), "manifest.json", "provenance.intoto.json"}
    assert signed == {name: digest((pulled / name).read_bytes()) for name in names}
    ignored = ["draftmill-notices.txt", "draftmill-pull.json", "model.sig", "signatures"]
    assert sorted(predicate["serialization"]["ignore_paths"]) == ignored


def test_a_signature_of_the_stock_tool_verifies_here(tmp_path: Path, pair: KeyPair) -> None:
    """Made in the store's folder by somebody who only has the stock tool; pulled and verified as any other."""
    store = LocalStore(tmp_path / "store")
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    folder = Path(store.where(manifest.folder))
    signature = folder / "model.sig"
    assert stock_command("sign", "key", folder, "--signature", signature, "--private_key", pair.private) == 0
    assert stock_verifies(folder, "model.sig", pair)
    assert verify(folder, public_key=pair.public).findings == ()
    pull(store, manifest.key, tmp_path / "out", public_key=pair.public)
    assert codes(tmp_path / "out", pair) == []


def test_a_folder_that_was_signed_by_the_stock_tool_after_its_pull_verifies_here(
    store: Store, manifest: Manifest, tmp_path: Path, pair: KeyPair
) -> None:
    out = tmp_path / "out"
    pull(store, manifest.key, out)
    stock_sign(out, pair)
    assert codes(out, pair) == []
    (out / "draftmill-pull.json").write_text((out / "draftmill-pull.json").read_text() + "\n")
    assert codes(out, pair) == ["signature.more"]


def test_another_key_signs_later_beside_the_first(
    store: Store, manifest: Manifest, pair: KeyPair, other: KeyPair, tmp_path: Path
) -> None:
    first, second = sign(store, manifest.key, pair.private), sign(store, manifest.key, other.private)
    assert first.where == store.where(manifest.key_of("model.sig"))
    assert second.where == store.where(manifest.key_of(f"signatures/{second.key[:16]}.sig"))
    assert (first.created, second.created) == (True, True)
    pull(store, manifest.key, tmp_path / "out", public_key=other.public)
    assert codes(tmp_path / "out", pair) == codes(tmp_path / "out", other) == []
    assert stock_verifies(tmp_path / "out", "model.sig", pair)
    assert stock_verifies(tmp_path / "out", f"signatures/{second.key[:16]}.sig", other)


def test_signing_again_changes_nothing_and_mends_what_is_damaged(
    store: Store, manifest: Manifest, pair: KeyPair
) -> None:
    sign(store, manifest.key, pair.private)
    key = manifest.key_of("model.sig")
    good = b"".join(store.read(key))
    assert not sign(store, manifest.key, pair.private).created
    assert b"".join(store.read(key)) == good
    bundle = json.loads(good)
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(b"0" * 70).decode()
    head = store.head(key)
    assert head
    store.replace(key, json.dumps(bundle).encode(), head.etag)
    assert sign(store, manifest.key, pair.private).created
    assert not sign(store, manifest.key, pair.private).created


def test_of_two_that_sign_at_once_with_one_key_one_does(store: Store, manifest: Manifest, pair: KeyPair) -> None:
    barrier, found = threading.Barrier(2), []

    def one() -> None:
        barrier.wait()
        found.append(sign(store, manifest.key, pair.private))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.created for each in found) == [False, True]


def test_publishers_of_one_recipe_with_two_keys_and_with_none_end_with_one_manifest_and_two_signatures(
    store: Store, tmp_path: Path, pair: KeyPair, other: KeyPair
) -> None:
    """Each has a manifest of its own time; what is signed is the one that stands."""
    barrier = threading.Barrier(3)
    failed: list[Exception] = []

    def one(number: int, key: Path | None) -> None:
        sample = publication(tmp_path / str(number), big=1000, created=START + timedelta(days=number))
        barrier.wait()
        try:
            published = publish(store, sample.files, sample.manifest)
            if key:
                sign(store, published.manifest.key, key, look=not published.created)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=each) for each in enumerate((pair.private, other.private, None), 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    key = f"{FOLDER}/manifest.json"
    for each in (pair, other):
        assert verify_published(store, key, public_key=each.public).findings == ()
    assert len(list(store.entries(f"{FOLDER}/signatures/"))) == 1


def test_a_publication_that_is_not_whole_is_not_signed(tmp_path: Path, pair: KeyPair) -> None:
    store = LocalStore(tmp_path / "store")
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    store.delete(manifest.key_of(Q4))
    with pytest.raises(Refused) as error:
        sign(store, manifest.key, pair.private)
    assert [refusal.code for refusal in error.value.refusals] == ["signature.files_differ"]
    assert store.head(manifest.key_of("model.sig")) is None


def test_without_a_signature_nothing_is_pulled_when_a_key_is_given(
    store: Store, manifest: Manifest, pair: KeyPair, other: KeyPair, tmp_path: Path
) -> None:
    assert refused(store, manifest, tmp_path / "out", pair) == ["signature.missing"]
    sign(store, manifest.key, other.private)
    assert refused(store, manifest, tmp_path / "out", pair) == ["signature.other_key"]
    pull(store, manifest.key, tmp_path / "out")
    assert codes(tmp_path / "out", pair) == ["signature.other_key"]
    (tmp_path / "out" / "model.sig").unlink()
    assert codes(tmp_path / "out", pair) == ["signature.missing"]


def test_some_of_the_files_are_enough_for_the_signature(
    store: Store, manifest: Manifest, pair: KeyPair, tmp_path: Path
) -> None:
    sign(store, manifest.key, pair.private)
    pull(store, manifest.key, tmp_path / "out", ["F16"], public_key=pair.public)
    assert codes(tmp_path / "out", pair) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def forge(folder: Path) -> None:
    """Another model, with a manifest and a provenance that promise it: right in itself."""
    from draftmill.store.manifest import read_manifest

    manifest = read_manifest((folder / "manifest.json").read_bytes(), "")
    (folder / F16).write_bytes(b"evil")
    files = tuple(
        file.model_copy(update={"size": 4, "sha256": digest(b"evil")}) if file.path == F16 else file
        for file in manifest.files
    )
    forged = manifest.model_copy(update={"files": files})
    (folder / "manifest.json").write_bytes(forged.to_bytes())
    (folder / "provenance.intoto.json").write_bytes(statement(forged, forged.to_bytes()))
    assert verify(folder).findings == ()


def sign_other_digests(folder: Path) -> None:
    """The payload is changed and keeps the signature of the old one."""
    bundle = json.loads((folder / "model.sig").read_bytes())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload.replace(b"models/", b"nodels/")).decode()
    (folder / "model.sig").write_text(json.dumps(bundle))


def put_among(folder: Path, name: str) -> None:
    (folder / "signatures").mkdir()
    (folder / "signatures" / name).write_text("#!/bin/sh\n")


CHANGES: dict[str, tuple[list[str], Callable[[Path], object]]] = {
    "a file that was tampered with": (["verify.bytes_differ"], lambda folder: flip(folder / F16)),
    "a file more": (["verify.unlisted"], lambda folder: (folder / "more.gguf").write_bytes(b"x")),
    "a file and all that promises it": (["signature.differs"], forge),
    "no signature": (["signature.missing"], lambda folder: (folder / "model.sig").unlink()),
    "no provenance": ([], lambda folder: (folder / "provenance.intoto.json").unlink()),
    "a signature over something else": (["signature.invalid"], sign_other_digests),
    "a file among the signatures": (["verify.unlisted"], lambda folder: put_among(folder, "evil.sh")),
    "a file by a signature's name": (["verify.unlisted"], lambda folder: put_among(folder, "0123456789abcdef.sig")),
    "no bundle": (["signature.unreadable", "verify.unlisted"], lambda folder: (folder / "model.sig").write_text("{}")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_has_its_own_finding(tmp_path: Path, pair: KeyPair, change: str) -> None:
    store = LocalStore(tmp_path / "store")
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    sign(store, manifest.key, pair.private)
    pull(store, manifest.key, tmp_path / "out")
    expected, make = CHANGES[change]
    make(tmp_path / "out")
    assert codes(tmp_path / "out", pair) == expected


@pytest.mark.parametrize("name", ["evil.sh", "deeper/0123456789abcdef.sig", "0123456789abcdef.sig"])
def test_what_lies_among_the_signatures_and_is_none_is_not_pulled_and_told(
    tmp_path: Path, pair: KeyPair, other: KeyPair, name: str
) -> None:
    """The second key's signature, which lies there too, is pulled."""
    store = LocalStore(tmp_path / "store")
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    sign(store, manifest.key, pair.private)
    second = sign(store, manifest.key, other.private)
    assert verify_published(store, manifest.key, public_key=pair.public).findings == ()
    store.create(manifest.key_of(f"signatures/{name}"), b"#!/bin/sh\n", digest(b"#!/bin/sh\n"))
    found = verify_published(store, manifest.key, public_key=pair.public).findings
    assert [(each.code, each.where) for each in found] == [
        ("verify.unlisted", store.where(manifest.key_of(f"signatures/{name}")))
    ]
    pull(store, manifest.key, tmp_path / "out", public_key=other.public)
    there = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out" / "signatures").rglob("*")]
    assert there == [f"signatures/{second.key[:16]}.sig"]
    assert codes(tmp_path / "out", other) == []
