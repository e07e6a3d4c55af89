"""Pulling: the files that a manifest promises, in parallel ranges, taken up where an earlier pull ended, all hashed.

A pulled folder holds the files under the manifest's paths, `draftmill-pull.json` (which publication this is, and which
of its quants were asked for; written first), `draftmill-notices.txt`, and `manifest.json`, written last: where it is,
everything that was asked for is there.
"""

import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from draftmill.hub.patience import Patience, Pause, Retry
from draftmill.outcome import InputOutput, MillError, Refusal, Refused, Temporary, Unavailable
from draftmill.progress import Progress, silent
from draftmill.store.interface import Store
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import File, Manifest, Sha256, Strict, read_manifest
from draftmill.store.notices import NAME as NOTICES
from draftmill.store.notices import notices_of
from draftmill.store.partial_file import PartialFile, is_whole
from draftmill.store.reading import get
from draftmill.store.selection import select
from draftmill.whole_file import write_whole

RECORD = "draftmill-pull.json"
THREADS = 8
_AGAIN = ("store.unreachable",)


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
) -> Pulled:
    """Writes the files of the publication whose manifest has this key below `folder`, which is made where it is not.

    quants: of these models only, see `selection.select`. pause: waits between attempts.
    Raises Refused with all findings: an unknown quant, bytes that are not the promised ones (pull.bytes_differ), a
    folder that holds something else (pull.other_publication, pull.in_the_way); InputOutput("pull.no_space") and others
    of disk and store. After any of them the same call goes on where this one ended.
    """
    quants = tuple(quants)
    manifest, data = read_publication(store, key)
    files = select(manifest, quants)
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        record = _record(store, manifest, data, folder, quants)
        wanted = [file for file in files if not is_whole(folder / file.path, file.size, file.sha256)]
        if not (folder / RECORD).exists():
            _check_way_is_free(folder, wanted)
        write_whole(folder / RECORD, record.model_dump_json(indent=1) + "\n")
        kept = sum(file.size for file in files) - sum(file.size for file in wanted)
        transfer = _Transfer(store, manifest, folder, progress, threads, pause)
        received = transfer.fetch(wanted, done=kept, total=sum(file.size for file in files))
        write_whole(folder / NOTICES, notices_of(manifest))
        write_whole(folder / MANIFEST, data)
        _sweep(folder, [*(file.path for file in files), RECORD, NOTICES, MANIFEST])
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


class _Transfer:
    """The files of one pull on their way. `resumed`: bytes of unfinished files that an earlier pull left."""

    def __init__(
        self, store: Store, manifest: Manifest, folder: Path, progress: Progress, threads: int, pause: Pause | None
    ) -> None:
        self._store, self._manifest, self._folder, self._threads = store, manifest, folder, threads
        self._progress = progress
        self._stop = threading.Event()
        self._pause = pause or self._stop.wait
        self._tally = threading.Lock()
        self._done = self._total = self.received = self.resumed = 0
        self._spliced: set[str] = set()

    def fetch(self, files: Sequence[File], *, done: int, total: int) -> int:
        """Returns the bytes that came. Raises Refused with every file whose bytes are not the promised ones."""
        self._done, self._total = done, total
        refusals: list[Refusal] = []
        with ExitStack() as stack:
            partials = {}
            for file in files:
                target = self._folder / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                partials[file] = stack.enter_context(PartialFile(target, file.size, file.sha256))
                self.resumed += partials[file].there
                if partials[file].there:
                    self._spliced.add(file.path)
            self._count(self.resumed)
            self._check_room(partials)
            self._receive(partials)
            for file, partial in partials.items():
                measured = partial.measure()
                if measured != file.sha256 and file.path in self._spliced:
                    # Bytes of several answers, or of an earlier day: one fresh answer decides.
                    self._count(-file.size)
                    partial.throw_away()
                    self._receive({file: partial})
                    measured = partial.measure()
                if measured == file.sha256:
                    partial.finish()
                else:
                    partial.remove()
                    refusals.append(self._differs(file, measured))
        if refusals:
            raise Refused(*refusals)
        return self.received

    def _check_room(self, partials: dict[File, PartialFile]) -> None:
        needed = sum(partial.size - partial.there for partial in partials.values())
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise _no_space(self._folder, f"{needed:,} bytes are needed and {free:,} are free", needed - free)

    def _receive(self, partials: dict[File, PartialFile]) -> None:
        with ThreadPoolExecutor(self._threads, thread_name_prefix="pull") as pool:
            try:
                futures = [
                    pool.submit(self._fetch_part, file, partial, part)
                    for file, partial in partials.items()
                    for part in partial.missing()
                ]
                ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in ended:
                    future.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _fetch_part(self, file: File, partial: PartialFile, part: int) -> None:
        at, stop = partial.span(part)
        patience, furthest = Patience(self._pause), at
        while at < stop and not self._stop.is_set():
            try:
                at = self._read(file, partial, part, at, stop)
            except _Broken as broken:
                at = broken.at
                self._spliced.add(file.path)
                patience.wait(Retry(broken.error), progressed=at > furthest)
                furthest = at

    def _read(self, file: File, partial: PartialFile, part: int, at: int, stop: int) -> int:
        """Where it came to: `stop`, or less when the pull is to end. Raises _Broken where trying again may help."""
        key = self._manifest.key_of(file.path)
        try:
            for piece in self._store.read(key, at, stop):
                if self._stop.is_set():
                    return at
                partial.write(part, piece[: stop - at])
                at += len(piece[: stop - at])
                self._count(len(piece), received=True)
        except (Temporary, Unavailable) as error:
            if isinstance(error, Unavailable) and error.code not in _AGAIN:
                raise
            raise _Broken(at, error) from None
        if at < stop:
            raise Refused(
                Refusal(
                    "pull.too_short",
                    self._store.where(key),
                    at,
                    file.size,
                    "The object in the store ends before the size that its manifest promises. Tell the publisher; "
                    "deleting the folder there and publishing again mends it.",
                )
            )
        return at

    def _count(self, count: int, *, received: bool = False) -> None:
        with self._tally:
            self._done += count
            self.received += count if received else 0
            self._progress(self._manifest.entry, self._done, self._total)

    def _differs(self, file: File, measured: str) -> Refusal:
        return Refusal(
            "pull.bytes_differ",
            self._store.where(self._manifest.key_of(file.path)),
            measured,
            file.sha256,
            "These are not the bytes that the manifest promises, so they were thrown away: the object was changed "
            "after it was published, or on its way. Tell the publisher; publishing again into a fresh folder mends it.",
        )


class _Broken(Exception):
    """A part broke off at this offset."""

    def __init__(self, at: int, error: MillError) -> None:
        super().__init__(str(error))
        self.at, self.error = at, error


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turns an OSError of the target folder into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise _no_space(folder, "the disk or your quota is full") from error
        where = str(error.filename or folder)
        raise InputOutput(
            f"{where}: {error.strerror or error}; look at the folder and repeat: what is there is kept.",
            code="pull.files",
            where=where,
        ) from error


def _no_space(folder: Path, why: str, more: int | None = None) -> InputOutput:
    free = f"free {more:,} bytes" if more else "free some space"
    return InputOutput(
        f"{folder}: {why}; {free} and repeat (what arrived is kept), or use another disk with -o.",
        code="pull.no_space",
        where=str(folder),
    )
