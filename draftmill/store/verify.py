"""A pulled folder held against its manifest: every file that should be there, byte for byte, and no other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from draftmill.digest import sha256_file
from draftmill.outcome import InputOutput, Refusal, Refused
from draftmill.place_beside import is_place
from draftmill.progress import Progress, silent
from draftmill.signing.bundle import LARGEST
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import File, Manifest, read_manifest
from draftmill.store.notices import NAME as NOTICES
from draftmill.store.notices import notices_of
from draftmill.store.provenance import NAME as PROVENANCE
from draftmill.store.provenance import statement
from draftmill.store.pull import RECORD, read_record
from draftmill.store.reading import get
from draftmill.store.selection import select
from draftmill.store.signatures import bundle_of, is_signature
from draftmill.store.signatures import check as check_signature

OURS = (MANIFEST, NOTICES, PROVENANCE, RECORD)


@dataclass(frozen=True)
class Verification:
    """`verified`: files whose bytes are the promised ones. `not_expected`: files of the manifest that were not asked
    for and are not there. `findings`: empty when the folder is what it says."""

    manifest: Manifest
    verified: tuple[File, ...]
    not_expected: tuple[File, ...]
    findings: tuple[Refusal, ...]


def verify(
    path: Path,
    quants: Iterable[str] = (),
    store: Store | None = None,
    progress: Progress = silent,
    *,
    public_key: Path | None = None,
) -> Verification:
    """Reads every byte below `path`, a pulled folder or a publication's folder in a local store.

    quants: what has to be there; without them what the folder was pulled as, or everything. store: also compare the
    manifest with the one that is published there: whoever changes files can change a manifest beside them.
    public_key: also hold the folder against the signature by this key.
    Raises InputOutput("verify.no_manifest"), Refused for a manifest that cannot be read or an unknown quant, and what
    the store raises.
    """
    folder = path.parent if path.name == MANIFEST and path.is_file() else path
    try:
        data = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputOutput(
            f"{folder} holds no {MANIFEST}: it is no pulled folder, or the pull did not finish. Pull it (again).",
            code="verify.no_manifest",
            where=str(folder),
        ) from None
    except OSError as error:
        raise _unreadable(folder / MANIFEST, error) from error
    manifest = read_manifest(data, str(folder / MANIFEST))
    record = read_record(folder)
    expected = select(manifest, quants or (record.quants if record and record.quants else ()))
    findings = list(_manifest_findings(folder, manifest, data, store))
    if public_key:
        findings += _signature_findings(folder, manifest, data, public_key)
    verified, total, done = [], sum(file.size for file in expected), 0
    there = {
        name.relative_to(folder).as_posix() for name in folder.rglob("*") if not name.is_dir() or name.is_symlink()
    }
    for file in manifest.files:
        if file not in expected and file.path not in there:
            continue
        finding = _compare(folder / file.path, file)
        done += file.size
        progress(file.path, done, max(total, done))
        if finding:
            findings.append(finding)
        else:
            verified.append(file)
    listed = {file.path for file in manifest.files}
    others = sorted(there - listed - set(OURS))
    findings += [_unlisted(folder / name) for name in others if not _is_signature(folder, name)]
    absent = tuple(file for file in manifest.files if file not in expected and file.path not in there)
    return Verification(manifest, tuple(verified), absent, tuple(findings))


def _is_signature(folder: Path, name: str) -> bool:
    """By its name, and by what it says: bytes of another kind do not get their place by a signature's name."""
    path = folder / name
    try:
        if not is_signature(name) or not path.is_file() or path.stat().st_size > LARGEST:
            return False
        return bundle_of(path.read_bytes(), str(path)) is not None
    except OSError as error:
        raise _unreadable(path, error) from error


def _manifest_findings(folder: Path, manifest: Manifest, data: bytes, store: Store | None) -> Iterator[Refusal]:
    if store is not None and get(store, manifest.key) != data:
        yield Refusal(
            "verify.manifest_differs",
            str(folder / MANIFEST),
            "another manifest",
            store.where(manifest.key),
            "The manifest here is not the published one, so that the files prove nothing. Pull into a fresh folder.",
        )
    notices = folder / NOTICES
    if notices.is_file() and notices.read_bytes() != notices_of(manifest).encode():
        yield Refusal(
            "verify.notices_differ",
            str(notices),
            "another text",
            "the notices of this manifest",
            "The notices have to travel with the files unchanged. Pull again: it writes them anew.",
        )
    provenance = folder / PROVENANCE
    if provenance.is_file() and provenance.read_bytes() != statement(manifest, data):
        yield Refusal(
            "verify.provenance_differs",
            str(provenance),
            "another statement",
            "the provenance of this manifest",
            "It says of these files what their manifest does not. Pull again: it is written anew.",
        )


def _signature_findings(folder: Path, manifest: Manifest, data: bytes, public_key: Path) -> Iterator[Refusal]:
    def read(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None

    beside = {name: sha256_file(folder / name) for name in OURS[1:] if (folder / name).is_file()}
    try:
        yield from check_signature(manifest, data, beside, public_key, read, str(folder))
    except OSError as error:
        raise _unreadable(folder, error) from error


def _compare(path: Path, file: File) -> Refusal | None:
    if path.is_symlink() or not path.is_file():
        return Refusal(
            "verify.missing",
            str(path),
            "a link" if path.is_symlink() else "nothing" if not path.exists() else "no file",
            file.sha256,
            "The manifest promises this file. Pull again: only what is missing is fetched.",
        )
    try:
        size = path.stat().st_size
        measured = sha256_file(path) if size == file.size else f"{size} bytes"
    except OSError as error:
        raise _unreadable(path, error) from error
    if measured == file.sha256:
        return None
    return Refusal(
        "verify.bytes_differ",
        str(path),
        measured,
        file.sha256 if size == file.size else f"{file.size} bytes",
        "These are not the bytes that were published. Pull again: the file is replaced.",
    )


def _unlisted(path: Path) -> Refusal:
    unfinished = (path.name.startswith(".") and path.suffix in (".partial", ".parts")) or is_place(path.parent.name)
    return Refusal(
        "verify.unfinished" if unfinished else "verify.unlisted",
        str(path),
        "a file",
        "nothing",
        "A pull did not finish. Pull again: it goes on where it ended."
        if unfinished
        else "The manifest does not promise this file: where it came from is not known. Move it out of the folder.",
    )


def _unreadable(path: Path, error: OSError) -> InputOutput:
    return InputOutput(
        f"{path}: {error.strerror}; it was not verified. Give yourself the right to read it, or look at the disk.",
        code="verify.unreadable",
        where=str(path),
    )


def require(found: Verification) -> None:
    """Raises Refused with every finding, where there is one."""
    if found.findings:
        raise Refused(*found.findings)
