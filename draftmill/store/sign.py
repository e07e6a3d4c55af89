"""Signing a publication, where it lies. Its files are not fetched for it: the manifest has their digests."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from draftmill.outcome import Refusal, Refused
from draftmill.signing.bundle import is_signed_by, sign_digests
from draftmill.signing.keys import key_id_of_private
from draftmill.store.contention import until_first
from draftmill.store.interface import Store
from draftmill.store.manifest import File, Manifest, read_manifest
from draftmill.store.notices import NAME as NOTICES
from draftmill.store.provenance import NAME as PROVENANCE
from draftmill.store.provenance import statement
from draftmill.store.publish import attest
from draftmill.store.pull import RECORD
from draftmill.store.reading import get, sha256_of
from draftmill.store.signatures import NAME, OTHERS, bundle_of, covered, names_for

NOT_COVERED = (NAME, OTHERS, RECORD, NOTICES)
"""Signatures, and what a pull adds: that is of the one who pulled."""


@dataclass(frozen=True)
class Signature:
    """A signature in the store. key: id of the key that made it. `created` is False when it was there already."""

    where: str
    key: str
    created: bool


def sign(store: Store, manifest_key: str, private_key: Path, *, look: bool = True) -> Signature:
    """Signs the publication whose manifest has this key, unless this key signed it already.

    look: hold every object against the manifest first; without it they have just been. Raises Refused
    ("signature.files_differ") when one is not what the manifest promises, BadConfiguration for a bad key, and what the
    store raises.
    """
    ours = key_id_of_private(private_key)
    data = get(store, manifest_key)
    manifest = read_manifest(data, store.where(manifest_key))
    if look and (findings := [found for file in manifest.files if (found := _look(store, manifest, file))]):
        raise Refused(*findings)
    # What lies there may be of a publisher that lost, and about to be put right.
    attest(store, manifest, data)
    digests = covered(manifest, data, {PROVENANCE: hashlib.sha256(statement(manifest, data)).hexdigest()})
    bundle = sign_digests(manifest.folder, digests, NOT_COVERED, private_key)
    return until_first(lambda: _put(store, manifest, bundle, digests, ours, private_key))


def _put(
    store: Store, manifest: Manifest, bundle: bytes, digests: dict[str, str], ours: str, private_key: Path
) -> Signature:
    """Under the first name that nobody else's signature has."""
    for name in names_for(ours):
        key = manifest.key_of(name)
        creation = store.create(key, bundle, hashlib.sha256(bundle).hexdigest())
        if creation.created:
            return Signature(store.where(key), ours, created=True)
        there = get(store, key)
        theirs = bundle_of(there, store.where(key))
        if theirs is None or theirs.key != ours:
            continue
        if theirs.digests == digests and is_signed_by(there, private_key):
            return Signature(store.where(key), ours, created=False)
        store.replace(key, bundle, creation.head.etag)
        return Signature(store.where(key), ours, created=True)
    where = store.where(manifest.key_of(names_for(ours)[-1]))
    sentence = "Something else lies where this key's signature has to; look at it and remove it."
    raise Refused(Refusal("signature.in_the_way", where, "no signature by this key", ours, sentence))


def _look(store: Store, manifest: Manifest, file: File) -> Refusal | None:
    key = manifest.key_of(file.path)
    head = store.head(key)
    trusted = store.promises.checksums and store.promises.metadata
    measured = (head.sha256 if head.sha256 and trusted else sha256_of(store, key)) if head else None
    if measured == file.sha256:
        return None
    sentence = "This is not what the manifest promises, so nothing was signed. Publish it again into another store."
    return Refusal("signature.files_differ", store.where(key), measured, file.sha256, sentence)
