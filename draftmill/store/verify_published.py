"""A publication where it lies in a store: every object against the manifest, and no other beside them."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from draftmill.outcome import Refusal
from draftmill.progress import Progress, silent
from draftmill.signing.bundle import LARGEST
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import File, Manifest
from draftmill.store.provenance import NAME as PROVENANCE
from draftmill.store.provenance import statement
from draftmill.store.pull import read_publication
from draftmill.store.reading import get, sha256_of
from draftmill.store.signatures import bundle_of, is_signature
from draftmill.store.signatures import check as check_signature
from draftmill.store.verify import Verification


def verify_published(
    store: Store, key: str, progress: Progress = silent, *, public_key: Path | None = None
) -> Verification:
    """Reads every byte of the publication whose manifest has this key. public_key: whose signature it has to have.

    Raises what the store raises, Refused for a manifest that cannot be read, BadConfiguration for a bad key file.
    """
    manifest, data = read_publication(store, key)
    there = {
        entry.key.removeprefix(f"{manifest.folder}/"): entry.size for entry in store.entries(f"{manifest.folder}/")
    }
    findings: list[Refusal] = []
    verified, done, total = [], 0, sum(file.size for file in manifest.files)
    for file in manifest.files:
        finding = _look(store, manifest, file, there.get(file.path))
        done += file.size
        progress(file.path, done, total)
        if finding:
            findings.append(finding)
        else:
            verified.append(file)
    findings += _others(store, manifest, there)
    beside = {}
    if PROVENANCE in there:
        content = get(store, manifest.key_of(PROVENANCE))
        beside[PROVENANCE] = hashlib.sha256(content).hexdigest()
        if content != statement(manifest, data):
            sentence = "It says of these files what their manifest does not. Publish again: it is put right."
            findings.append(_finding(store, manifest, "provenance_differs", PROVENANCE, "another statement", sentence))
    if public_key:

        def read(name: str) -> bytes | None:
            return get(store, manifest.key_of(name)) if name in there else None

        findings += check_signature(manifest, data, beside, public_key, read, store.where(manifest.folder))
    return Verification(manifest, tuple(verified), (), tuple(findings))


def _look(store: Store, manifest: Manifest, file: File, size: int | None) -> Refusal | None:
    if size is None:
        sentence = "The manifest promises this file, and it is gone. Publish again into another store."
        return _finding(store, manifest, "missing", file.path, None, sentence, file.sha256)
    measured = sha256_of(store, manifest.key_of(file.path)) if size == file.size else f"{size} bytes"
    if measured == file.sha256:
        return None
    sentence = "These are not the bytes that were published. Publish again into another store, and see who writes here."
    return _finding(store, manifest, "bytes_differ", file.path, measured, sentence, file.sha256)


def _others(store: Store, manifest: Manifest, there: Mapping[str, int]) -> Iterator[Refusal]:
    listed = {file.path for file in manifest.files} | {MANIFEST, PROVENANCE}
    for path in sorted(there.keys() - listed):
        if not _is_signature(store, manifest, path, there[path]):
            sentence = "The manifest does not promise it: nobody knows whence it is. Remove it, or let `draftmill gc`."
            yield _finding(store, manifest, "unlisted", path, "an object", sentence, "nothing")


def _is_signature(store: Store, manifest: Manifest, path: str, size: int) -> bool:
    if not is_signature(path) or size > LARGEST:
        return False
    key = manifest.key_of(path)
    return bundle_of(get(store, key), store.where(key)) is not None


def _finding(
    store: Store,
    manifest: Manifest,
    code: str,
    path: str,
    measured: str | None,
    sentence: str,
    expected: str = "what the manifest says",
) -> Refusal:
    return Refusal(f"verify.{code}", store.where(manifest.key_of(path)), measured, expected, sentence)
