"""Pulling: the files that a manifest promises, in parallel ranges, taken up where an earlier pull ended, all hashed.

A pulled folder holds the files under the manifest's paths, `draftmill-pull.json` (which publication this is, and which
of its quants were asked for; written first), `draftmill-notices.txt`, the provenance and signatures, and
`manifest.json`, written last: where it is, everything that was asked for is there.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from draftmill.hub.patience import Pause
from draftmill.outcome import InputOutput, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import File, Manifest, Sha256, Strict, read_manifest
from draftmill.store.notices import NAME as NOTICES
from draftmill.store.notices import notices_of
from draftmill.store.partial_file import is_whole
from draftmill.store.provenance import NAME as PROVENANCE
from draftmill.store.provenance import statement
from draftmill.store.reading import get
from draftmill.store.selection import select
from draftmill.store.signatures import bundle_of, names_in
from draftmill.store.signatures import check as check_signature
from draftmill.store.transfer import Transfer, no_space
from draftmill.whole_file import write_whole

RECORD = "draftmill-pull.json"
THREADS = 8


class Record(Strict):
    """What a folder was pulled as. `quants` None: everything."""

    schema_version: Literal[1] = 1
    store: str
    manifest: str
    manifest_sha256: Sha256
    quants: tuple[str, ...] | None


@dataclass(frozen=True)
class Pulled:
    """`files`: what was asked for, all of it below `folder` now. received, kept: bytes that came, and that were there
    already."""

    folder: Path
    manifest: Manifest
    files: tuple[File, ...]
    received: int
    kept: int


def read_publication(store: Store, key: str) -> tuple[Manifest, bytes]:
    """The manifest with this key and its bytes. Raises Refused where it is none, or one of another folder."""
    data = get(store, key)
    manifest = read_manifest(data, store.where(key))
    if manifest.key != key:
        raise Refused(
            Refusal(
                "pull.manifest_misplaced",
                store.where(key),
                manifest.key,
                key,
                "This manifest belongs to another folder: it was copied or changed by hand. Publish again.",
            )
        )
    return manifest, data


def pull(
    store: Store,
    key: str,
    folder: Path,
    quants: Iterable[str] = (),
    progress: Progress = silent,
    *,
    threads: int = THREADS,
    pause: Pause | None = None,
    public_key: Path | None = None,
) -> Pulled:
    """Writes the files of the publication whose manifest has this key below `folder`, which is made where it is not.

    quants: of these models only, see `selection.select`. pause: waits between attempts. public_key: whose signature it
    has to have; nothing is written before that is known.
    Raises Refused with all findings: a signature that is missing or wrong (signature.*), an unknown quant, bytes that
    are not the promised ones (pull.bytes_differ), a folder that holds something else (pull.other_publication,
    pull.in_the_way); InputOutput("pull.no_space") and others of disk and store. After any of them the same call goes on
    where this one ended.
    """
    quants = tuple(quants)
    manifest, data = read_publication(store, key)
    files = select(manifest, quants)
    provenance = statement(manifest, data)
    signatures = {name: get(store, manifest.key_of(name)) for name in names_in(store, manifest)}
    if public_key:
        beside = {PROVENANCE: sha256(provenance).hexdigest()}
        where = store.where(manifest.folder)
        if findings := list(check_signature(manifest, data, beside, public_key, signatures.get, where)):
            raise Refused(*findings)
    signatures = {name: content for name, content in signatures.items() if bundle_of(content, name)}
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        record = _record(store, manifest, data, folder, quants)
        wanted = [file for file in files if not is_whole(folder / file.path, file.size, file.sha256)]
        if not (folder / RECORD).exists():
            _check_way_is_free(folder, wanted)
        write_whole(folder / RECORD, record.model_dump_json(indent=1) + "\n")
        kept = sum(file.size for file in files) - sum(file.size for file in wanted)
        transfer = Transfer(store, manifest, folder, progress, threads, pause)
        received = transfer.fetch(wanted, done=kept, total=sum(file.size for file in files))
        write_whole(folder / NOTICES, notices_of(manifest))
        write_whole(folder / PROVENANCE, provenance)
        for name, content in signatures.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_whole(folder / name, content)
        write_whole(folder / MANIFEST, data)
        _sweep(folder, [file.path for file in files])
    return Pulled(folder, manifest, files, received, kept + transfer.resumed)


def _sweep(folder: Path, names: Iterable[str]) -> None:
    """Removes what a killed pull left beside files that are whole now."""
    for name in names:
        path = folder / name
        for ending in ("partial", "parts"):
            for left in path.parent.glob(f".{escape(path.name)}.????????.{ending}"):
                left.unlink(missing_ok=True)


def read_record(folder: Path) -> Record | None:
    """None where there is none that can be read."""
    try:
        return Record.model_validate_json((folder / RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def _record(store: Store, manifest: Manifest, data: bytes, folder: Path, quants: Sequence[str]) -> Record:
    """Raises Refused where the folder is another publication's."""
    digest = sha256(data).hexdigest()
    found, there = read_record(folder), folder / MANIFEST
    other = found.manifest if found and found.manifest_sha256 != digest else None
    if other is None and there.exists() and there.read_bytes() != data:
        other = "a manifest.json that is not this one"
    if other:
        raise Refused(
            Refusal(
                "pull.other_publication",
                str(folder),
                other,
                manifest.key,
                "This folder holds another publication, and nothing of it is overwritten. Choose another folder with "
                "-o, or remove this one.",
            )
        )
    everything = not quants or (found is not None and found.quants is None)
    asked = None if everything else tuple(dict.fromkeys([*(found.quants or () if found else ()), *quants]))
    return Record(store=store.name, manifest=manifest.key, manifest_sha256=digest, quants=asked)


def _check_way_is_free(folder: Path, files: Iterable[File]) -> None:
    in_the_way = [file for file in files if (folder / file.path).is_symlink() or (folder / file.path).exists()]
    if in_the_way:
        raise Refused(
            *(
                Refusal(
                    "pull.in_the_way",
                    str(folder / file.path),
                    "a file with other bytes",
                    file.sha256,
                    "A file of this name is there and did not come from this publication. Nothing was overwritten; "
                    "move it away, or choose another folder with -o.",
                )
                for file in in_the_way
            )
        )


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turns an OSError of the target folder into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise no_space(folder, "the disk or your quota is full") from error
        where = str(error.filename or folder)
        raise InputOutput(
            f"{where}: {error.strerror or error}; look at the folder and repeat: what is there is kept.",
            code="pull.files",
            where=where,
        ) from error
