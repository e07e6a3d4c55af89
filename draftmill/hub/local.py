"""A mirror folder or a model's own folder: its listing, and a file's bytes from any offset.

A mirror holds a repository's files directly in `<owner>/<repo>/`. A `.listing.json` there (a Listing's JSON) pins the
commit and the digests; without one the digests are computed and the commit is the digest of names, sizes and digests.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from draftmill.digest import sha256_file, sha256_json
from draftmill.hub.card import read_card
from draftmill.hub.checksum import CHUNK
from draftmill.hub.listing import ListedFile, Listing, Selection, is_taken, select
from draftmill.hub.ref import DEFAULT_REVISION, Ref
from draftmill.outcome import Refusal, Refused

PIN = ".listing.json"


def list_folder(folder: Path, selection: Selection) -> Listing:
    """Computes every digest. Raises Refused."""
    return _compute(folder, selection, Ref(folder=folder), "folder")


def list_mirror(ref: Ref, root: Path, selection: Selection) -> Listing:
    """The mirror's copy of a repository, by its pin where it has one. Raises Refused."""
    folder = mirror_folder(root, ref.repo or "")
    pin = read_pin(folder)
    listing = _check_pin(folder, pin, ref, selection) if pin else _compute(folder, selection, ref, "mirror")
    if ref.revision not in (DEFAULT_REVISION, listing.commit, listing.requested_revision if pin else None):
        sentence = f"The mirror holds {ref.repo} at {listing.commit} and no other revision."
        raise Refused(Refusal("hub.revision_missing", str(ref), ref.revision, listing.commit, sentence))
    return listing.model_copy(update={"requested_revision": ref.revision})


def mirror_folder(root: Path, repo: str) -> Path:
    """Raises Refused when the mirror has no such repository."""
    folder = root / repo
    if not folder.is_dir():
        sentence = f"The mirror {root} has no folder {repo}. Put the repository's files there, or check the spelling."
        raise Refused(Refusal("hub.repo_missing", repo, "absent", str(folder), sentence))
    return folder


def read_pin(folder: Path) -> Listing | None:
    """The mirror's `.listing.json`. Raises Refused when it is there and is not a listing."""
    path = folder / PIN
    if not path.exists():
        return None
    try:
        return Listing.model_validate_json(path.read_bytes())
    except ValidationError as error:
        sentence = f"{path} is not a listing. Write it anew from a resolve result, or remove it."
        raise Refused(Refusal("hub.pin", str(path), f"{error.error_count()} errors", "a listing", sentence)) from None


def file_names(folder: Path) -> list[str]:
    """What lies directly in the folder; folders are named with a slash at the end. The pin is not part of it."""
    return sorted(p.name + "/" * p.is_dir() for p in folder.iterdir() if p.name != PIN)


def _compute(folder: Path, selection: Selection, ref: Ref, source: str) -> Listing:
    names = file_names(folder)
    taken, aside = select([n for n in names if not n.endswith("/")], selection, str(folder))
    paths = [open_path(folder, name) for name in taken]
    files = [
        ListedFile(path=name, size=path.stat().st_size, sha256=sha256_file(path))
        for name, path in zip(taken, paths, strict=True)
    ]
    licence, base_models = read_card(folder)
    return Listing.model_validate(
        {
            "repo": ref.repo,
            "requested_revision": ref.revision if ref.repo else "",
            "commit": sha256_json([[file.path, file.size, file.sha256] for file in files]),
            "source": source,
            "licence": licence,
            "base_models": base_models,
            "files": files,
            "not_taken": sorted(aside + [n for n in names if n.endswith("/")]),
        }
    )


def _check_pin(folder: Path, pin: Listing, ref: Ref, selection: Selection) -> Listing:
    """The pinned files of this selection are there, in the pinned sizes, and nothing beside them would be taken.
    Their digests are compared when they are copied."""
    findings = []
    if pin.repo != ref.repo:
        sentence = f"{folder / PIN} is about {pin.repo}, not {ref.repo}."
        findings.append(Refusal("hub.pin", str(folder / PIN), pin.repo, ref.repo, sentence))
    select([file.path for file in pin.files], selection, str(folder))
    files = [file for file in pin.files if is_taken(file.path, selection)]
    for file in files:
        path = folder / file.path
        size = path.stat().st_size if path.is_file() else None
        if size != file.size:
            sentence = f"{path} is not what the mirror's listing says. Copy it again."
            findings.append(Refusal("hub.mirror_differs", file.path, size, file.size, sentence))
    names, pinned = file_names(folder), {file.path for file in pin.files}
    for name in names:
        if is_taken(name, selection) and name not in pinned:
            sentence = f"{folder / name} is not in the mirror's listing. Remove it, or list it."
            findings.append(Refusal("hub.mirror_unlisted", name, name, "a listed file", sentence))
    if findings:
        raise Refused(*findings)
    aside = sorted({*names, *pin.not_taken, *pinned} - {file.path for file in files})
    return pin.model_copy(update={"source": "mirror", "files": tuple(files), "not_taken": tuple(aside)})


def belongs(real: Path, folder: Path) -> bool:
    """Whether a resolved path lies in the folder, or in the blobs of the Hugging Face cache that the folder is in."""
    root = folder.resolve()
    allowed = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    return any(real.is_relative_to(place) for place in allowed)


def open_path(folder: Path, name: str) -> Path:
    """The regular file behind a name. A link may lead within the folder, and within the repository's part of a
    Hugging Face cache (snapshots/ to blobs/); one that leads out would carry a stranger's file into the store."""
    real, root = (folder / name).resolve(), folder.resolve()
    if not belongs(real, folder):
        sentence = f"{folder / name} is a link out of its folder. Put the file itself there."
        raise Refused(Refusal("hub.link", name, str(real), str(root), sentence))
    if not real.is_file():
        raise Refused(Refusal("hub.not_a_file", name, "no regular file", "a file", f"{folder / name} is not a file."))
    return real


class LocalFiles:
    """Opens the files of one listing in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def open_at(self, file: ListedFile, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """(offset, the bytes from there). Raises Refused, OSError."""
        with open_path(self._folder, file.path).open("rb", buffering=0) as stream:
            stream.seek(offset)
            yield offset, iter(lambda: stream.read(CHUNK), b"")
