"""Publishing: the files, then a look at each, the provenance, then the manifest, which commits them.

Killed at any point, a publisher leaves whole objects or none, and a manifest only when everything it lists is there.
Published again, the same recipe does nothing. Two publishers of one recipe write the same bytes; if they do not, the
second is refused.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftmill.digest import sha256_file
from draftmill.licences.duties import Publication
from draftmill.licences.duties import refusals as licence_refusals
from draftmill.licences.lineage import Start, trace
from draftmill.outcome import Refusal, Refused, Temporary
from draftmill.progress import Progress, silent
from draftmill.store.endings import changed, damaged
from draftmill.store.interface import Creation, Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import File, Kind, Manifest, Role, folder_key, read_manifest
from draftmill.store.provenance import key_of, statement
from draftmill.store.reading import get, sha256_of


@dataclass(frozen=True)
class Published:
    """A committed publication. `created` is False when it was there already; `manifest` is the one in the store."""

    manifest: Manifest
    where: str
    created: bool


def describe(path: Path, name: str, role: Role) -> File:
    """A local file as the manifest lists it."""
    return File(path=name, size=path.stat().st_size, sha256=sha256_file(path), role=role)


def find(store: Store, kind: Kind, entry: str, commit: str, recipe: str) -> Published | None:
    """The publication of this recipe, or None. Raises Refused when the folder holds something else."""
    key = f"{folder_key(kind, entry, commit, recipe)}/{MANIFEST}"
    if store.head(key) is None:
        return None
    manifest = read_manifest(get(store, key), store.where(key))
    if (manifest.recipe, manifest.source.commit, manifest.entry) != (recipe, commit, entry):
        raise Refused(
            Refusal(
                "store.recipe_collision",
                store.where(key),
                [manifest.entry, manifest.source.commit, manifest.recipe],
                [entry, commit, recipe],
                "Another recipe is published under the same short name; change a parameter, or use another store.",
            )
        )
    return Published(manifest, store.where(key), created=False)


def publish(store: Store, files: Mapping[str, Path], manifest: Manifest, progress: Progress = silent) -> Published:
    """Publishes `files` (path in the manifest -> local file) under `manifest.folder`.

    Raises Refused with every finding: files and manifest disagree, the licence's terms are not met, other bytes are
    published under this recipe; and what the store raises.
    """
    findings = _disagreements(files, manifest) + _licence(files, manifest)
    if findings:
        raise Refused(*findings)
    found = _find_same(store, manifest)
    if found:
        _put_back(store, files, manifest)
        return found
    store.sweep()
    creations = [
        store.create(manifest.key_of(file.path), files[file.path], file.sha256, progress) for file in manifest.files
    ]
    findings = [
        finding
        for file, creation in zip(manifest.files, creations, strict=True)
        if (finding := _verify(store, manifest, file, creation))
    ]
    if findings:
        raise Refused(*findings)
    data = manifest.to_bytes()
    attest(store, manifest, data)
    created = store.create(manifest.key, data, hashlib.sha256(data).hexdigest()).created
    found = Published(manifest, store.where(manifest.key), created=True) if created else _find_same(store, manifest)
    if found is None:
        raise changed(store.where(manifest.key))
    # Another publisher of the same recipe may have come between: what stands is of the manifest that stands.
    attest(store, found.manifest, data if created else get(store, manifest.key))
    _put_back(store, files, manifest)
    return found


def _put_back(store: Store, files: Mapping[str, Path], manifest: Manifest) -> None:
    """What a sweep took that cleared the folder between the look and the manifest. Now that this stands, none does."""
    there = {entry.key for entry in store.entries(f"{manifest.folder}/")}
    for file in manifest.files:
        if manifest.key_of(file.path) not in there:
            store.create(manifest.key_of(file.path), files[file.path], file.sha256)


def attest(store: Store, manifest: Manifest, data: bytes) -> None:
    """Puts the provenance of this manifest beside it; of the folder's objects it alone may be replaced, by its like."""
    key, content = key_of(manifest), statement(manifest, data)
    creation = store.create(key, content, hashlib.sha256(content).hexdigest())
    if not creation.created and get(store, key) != content:
        with suppress(Temporary):  # the other one is putting the same there, or is about to
            store.replace(key, content, creation.head.etag)


def _find_same(store: Store, manifest: Manifest) -> Published | None:
    found = find(store, manifest.kind, manifest.entry, manifest.source.commit, manifest.recipe)
    if found is None:
        return None
    theirs = {file.path: file.sha256 for file in found.manifest.files}
    ours = {file.path: file.sha256 for file in manifest.files}
    if differing := sorted(path for path in theirs.keys() | ours.keys() if theirs.get(path) != ours.get(path)):
        raise Refused(*(_differs(store, manifest, path, theirs.get(path), ours.get(path)) for path in differing))
    return found


def _verify(store: Store, manifest: Manifest, file: File, creation: Creation) -> Refusal | None:
    """What is really there, as far as the store's promises make it necessary to look."""
    key = manifest.key_of(file.path)
    head = store.head(key)
    if head is None:
        raise changed(store.where(key))
    trusted = store.promises.checksums and store.promises.metadata
    sha256 = head.sha256 if head.sha256 and trusted else sha256_of(store, key)
    if (head.size, sha256) == (file.size, file.sha256):
        return None
    if creation.created:
        raise damaged(store.where(key), sha256, file.sha256)
    return _differs(store, manifest, file.path, sha256, file.sha256)


def _differs(store: Store, manifest: Manifest, path: str, theirs: str | None, ours: str | None) -> Refusal:
    return Refusal(
        "store.bytes_differ",
        store.where(manifest.key_of(path)),
        theirs,
        ours,
        f"Recipe {manifest.recipe[:8]} gave other bytes before, so a job of it is not a pure function of its input (or "
        "a tool is not pinned). Nothing was overwritten; compare the two, and delete the object if that is the wrong "
        "one.",
    )


def _disagreements(files: Mapping[str, Path], manifest: Manifest) -> list[Refusal]:
    listed = {file.path: file.size for file in manifest.files}
    found = [
        Refusal(
            "store.files_differ",
            path,
            "given" if path in files else "listed",
            "given and listed",
            "The manifest has to list exactly the files that are published.",
        )
        for path in sorted(listed.keys() ^ files.keys())
    ]
    for path in sorted(listed.keys() & files.keys()):
        size = files[path].stat().st_size if files[path].is_file() else None
        if size != listed[path]:
            found.append(
                Refusal(
                    "store.files_differ", path, size, listed[path], "The file is not the one that the manifest lists."
                )
            )
    return found


def _licence(files: Mapping[str, Path], manifest: Manifest) -> list[Refusal]:
    """By what the manifest says of its lineage, and by names that it does not say more of."""
    source, donor = manifest.source, manifest.donor.source if manifest.donor else None
    starts = [Start(name, "base", "its card") for name in source.base_models]
    if donor:
        starts += [Start(name, "donor", "the manifest") for name in (donor.repo, *donor.base_models) if name]
    told = {ancestor.name for ancestor in manifest.lineage}
    untold = trace((start for start in starts if start.name not in told), itself=source.repo)
    names = [source.repo, *(start.name for start in starts)]
    return licence_refusals(
        Publication(
            licence=manifest.licence.id,
            statement=manifest.licence.statement,
            names=tuple(name for name in names if name),
            lineage=(*manifest.lineage, *untold),
        ),
        source_files=[file.path for file in source.files],
        files={path: file for path, file in files.items() if file.is_file()},
        models=[file.path for file in manifest.files if file.role == "model"],
        notices=manifest.notices,
    )
