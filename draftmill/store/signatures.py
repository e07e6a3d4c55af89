"""Signatures beside a publication: which files they cover, where they lie, and what has to hold of them.

model.sig                the first signature (the name that OMS uses)
signatures/<key16>.sig   one by each further key; key16 begins the key's id

Nothing else is a signature, and no other file gets its place in a publication by lying there.

A signature covers manifest.json, every file that it lists, and the provenance. It is made after the manifest was
committed, of the one that stands: of two publishers of one recipe, both then sign the same. It is not named by the
manifest, so that another key can sign later; and none of the names above is covered, so that it can lie there.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from draftmill.outcome import Refusal, Refused
from draftmill.signing.bundle import Bundle, other_key, read_bundle, signed_digests
from draftmill.signing.keys import key_id
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import Manifest
from draftmill.store.provenance import NAME as PROVENANCE
from draftmill.store.reading import get

NAME = "model.sig"
OTHERS = "signatures"
_SHORT = 16
_OTHER = re.compile(rf"{OTHERS}/[0-9a-f]{{{_SHORT}}}\.sig")


def is_signature(path: str) -> bool:
    """Whether a path below a publication's folder is a signature's, by its name alone."""
    return path == NAME or _OTHER.fullmatch(path) is not None


def names_for(key: str) -> tuple[str, str]:
    """Where a signature by this key may lie, in the order in which it is looked for."""
    return NAME, f"{OTHERS}/{key[:_SHORT]}.sig"


def names_in(store: Store, manifest: Manifest) -> list[str]:
    """The signatures that a publication has, below its folder, by their names alone."""
    folder = f"{manifest.folder}/"
    found = [NAME] if store.head(folder + NAME) else []
    others = (entry.key.removeprefix(folder) for entry in store.entries(f"{folder}{OTHERS}/"))
    return found + [path for path in others if is_signature(path)]


def signers(store: Store, manifest: Manifest) -> tuple[str, ...]:
    """Ids of the keys that its signatures name, which is not yet to say that they are theirs."""
    found = (bundle_of(get(store, manifest.key_of(name)), store.where(name)) for name in names_in(store, manifest))
    return tuple(dict.fromkeys(bundle.key for bundle in found if bundle and bundle.key))


def check(
    manifest: Manifest,
    data: bytes,
    beside: Mapping[str, str],
    public_key: Path,
    read: Callable[[str], bytes | None],
    where: str,
) -> Iterator[Refusal]:
    """What is wrong with the signature by this key; nothing where it vouches for this manifest and all that it lists.

    data: the manifest's bytes; beside: path -> sha256 of the other files there, such as the provenance; read: a
    signature's bytes by its name, None where there is none; where: of the folder, for people. The files themselves
    are to be held against the manifest. Raises BadConfiguration for a bad key file.
    """
    ours = key_id(public_key)
    found = {name: content for name in names_for(ours) if (content := read(name)) is not None}
    if not found:
        yield Refusal(
            "signature.missing",
            where,
            None,
            f"{NAME}, by the key {ours[:_SHORT]}",
            "Nobody signed this, or the signature did not travel along. Ask the publisher to sign it (draftmill sign), "
            "and pull again; without --public-key it can be had unsigned.",
        )
        return
    bundles = {name: bundle_of(content, where) for name, content in found.items()}
    name = next((name for name, bundle in bundles.items() if bundle and bundle.key == ours), None)
    if name is None:
        # One that names no key may be by any; one that cannot be read says why below.
        name = next((name for name, bundle in bundles.items() if bundle is None or bundle.key is None), None)
    if name is None:
        yield other_key(where, [bundle.key for bundle in bundles.values() if bundle], ours)
        return
    try:
        signed = signed_digests(found[name], public_key, f"{where}/{name}")
    except Refused as refused:
        yield from refused.refusals
        return
    yield from _compare(signed, manifest, data, beside, where)


def _compare(
    signed: Mapping[str, str], manifest: Manifest, data: bytes, beside: Mapping[str, str], where: str
) -> Iterator[Refusal]:
    for path, sha256 in covered(manifest, data, {}).items():
        if signed.get(path) != sha256:
            yield _differs(f"{where}/{path}", signed.get(path), sha256)
    if PROVENANCE in beside and signed.get(PROVENANCE) != beside[PROVENANCE]:
        yield _differs(f"{where}/{PROVENANCE}", signed.get(PROVENANCE), beside[PROVENANCE])
    listed = {file.path for file in manifest.files} | {MANIFEST, PROVENANCE}
    for path in sorted(signed.keys() - listed):
        if path in beside and beside[path] == signed[path]:
            continue
        yield Refusal(
            "signature.more",
            f"{where}/{path}",
            beside.get(path),
            signed[path],
            "This key also signed a file that the manifest does not list and that is not here as it was: a publication "
            "is whole, or it is another one. Pull it again.",
        )


def _differs(where: str, signed: str | None, here: str) -> Refusal:
    return Refusal(
        "signature.differs",
        where,
        here,
        signed or "not signed",
        "The key vouches for other bytes under this name, or for none. Take neither: pull from the publisher's own "
        "store, and tell them.",
    )


def covered(manifest: Manifest, data: bytes, beside: Mapping[str, str]) -> dict[str, str]:
    """path -> sha256 of all that a signature has to cover. data: the manifest's bytes; beside: what else is there."""
    files = {file.path: file.sha256 for file in manifest.files}
    return {**files, **beside, MANIFEST: hashlib.sha256(data).hexdigest()}


def bundle_of(data: bytes, where: str) -> Bundle | None:
    """None for one that cannot be read."""
    try:
        return read_bundle(data, where)
    except Refused:
        return None
