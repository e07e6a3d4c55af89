"""The bytes of a pull on their way: parts of many files, several at a time, until each file is what was promised."""

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

from draftmill.hub.patience import Patience, Pause, Retry
from draftmill.outcome import InputOutput, MillError, Refusal, Refused, Temporary, Unavailable
from draftmill.progress import Progress
from draftmill.store.interface import Store
from draftmill.store.manifest import File, Manifest
from draftmill.store.partial_file import PartialFile

_AGAIN = ("store.unreachable",)


class Transfer:
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
            raise no_space(self._folder, f"{needed:,} bytes are needed and {free:,} are free", needed - free)

    def _receive(self, partials: dict[File, PartialFile]) -> None:
        with ThreadPoolExecutor(self._threads, thread_name_prefix="pull") as pool:
            try:
                futures = []
                for file, partial in partials.items():
                    if partial.count > 1 and not self._store.gives_ranges(self._manifest.key_of(file.path)):
                        futures.append(pool.submit(self._fetch_whole, file, partial))
                    else:
                        futures += [pool.submit(self._fetch_part, file, partial, part) for part in partial.missing()]
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
            raise self._too_short(file, at)
        return at

    def _fetch_whole(self, file: File, partial: PartialFile) -> None:
        """In one stream, of which what is there already is passed over."""
        patience, furthest = Patience(self._pause), 0
        while partial.missing() and not self._stop.is_set():
            try:
                self._read_whole(file, partial)
            except _Broken as broken:
                self._spliced.add(file.path)
                patience.wait(Retry(broken.error), progressed=broken.at > furthest)
                furthest = max(furthest, broken.at)

    def _read_whole(self, file: File, partial: PartialFile) -> None:
        at = 0
        try:
            for piece in self._store.read(self._manifest.key_of(file.path), 0, file.size):
                if self._stop.is_set():
                    return
                if written := partial.fill(at, piece):
                    self._count(written, received=True)
                at += len(piece)
        except (Temporary, Unavailable) as error:
            if isinstance(error, Unavailable) and error.code not in _AGAIN:
                raise
            raise _Broken(at, error) from None
        if at < file.size:
            raise self._too_short(file, at)

    def _count(self, count: int, *, received: bool = False) -> None:
        with self._tally:
            self._done += count
            self.received += count if received else 0
            self._progress(self._manifest.entry, self._done, self._total)

    def _too_short(self, file: File, at: int) -> Refused:
        return Refused(
            Refusal(
                "pull.too_short",
                self._store.where(self._manifest.key_of(file.path)),
                at,
                file.size,
                "The object in the store ends before the size that its manifest promises. Tell the publisher; "
                "deleting the folder there and publishing again mends it.",
            )
        )

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


def no_space(folder: Path, why: str, more: int | None = None) -> InputOutput:
    free = f"free {more:,} bytes" if more else "free some space"
    return InputOutput(
        f"{folder}: {why}; {free} and repeat (what arrived is kept), or use another disk with -o.",
        code="pull.no_space",
        where=str(folder),
    )
