"""One file of a listing on its way to its final name."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from draftmill.hub.checksum import Checksum, checksum_of
from draftmill.hub.listing import ListedFile
from draftmill.hub.paths import PARTIAL
from draftmill.hub.patience import Patience, Pause, Retry
from draftmill.outcome import InputOutput, Refusal, Refused, Temporary
from draftmill.progress import Progress

WRONG_BYTES = frozenset({"hub.digest", "hub.too_long"})


class Files(Protocol):
    """Gives a file's bytes from an offset: (where they really start, the bytes)."""

    def open_at(self, file: ListedFile, offset: int) -> AbstractContextManager[tuple[int, Iterator[bytes]]]: ...


class Stopped(Exception):
    """Another file failed."""


class Tally:
    """How far all threads are together, in bytes."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress, self._lock = 0, total, progress, threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._progress("download", self._done, self._total)


class Together:
    """What the transfers of one download share: their tally, the sign to stop, and how to wait."""

    def __init__(self, tally: Tally, stop: threading.Event, pause: Pause | None) -> None:
        self.tally, self.stop, self.pause = tally, stop, pause or stop.wait


class Transfer:
    """One file on its way. received: bytes that came, thrown away or not; kept: bytes that were there and stayed."""

    def __init__(self, file: ListedFile, target: Path, files: Files, together: Together) -> None:
        self.file, self.received, self.kept = file, 0, 0
        self._target, self._partial = target, target.with_name(target.name + PARTIAL)
        self._files, self._together = files, together
        self._checksum = Checksum(file)
        # Bytes of more than one answer: when their digest is wrong, one fresh answer decides.
        self._spliced = False

    def run(self) -> None:
        self._check_stop()
        if self._is_finished():
            return
        try:
            handle = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(handle, "r+b", buffering=0) as stream:
                self._take_up(stream)
                self._fill(stream)
                os.fsync(stream.fileno())
            self._partial.rename(self._target)
        except Refused:
            self._partial.unlink(missing_ok=True)
            raise
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise no_space(self._target.parent, self.file.size - self._checksum.count, 0) from None
            place = error.filename or self._partial
            raise InputOutput(f"{place}: {error.strerror}.", code="hub.files", where=self.file.path) from None

    def _is_finished(self) -> bool:
        if not self._target.is_file() or self._target.is_symlink():
            return False
        with self._target.open("rb", buffering=0) as stream:
            checksum = checksum_of(self.file, stream)
        if checksum.count == self.file.size and checksum.agrees:
            self._keep(self.file.size)
            return True
        self._target.unlink()
        return False

    def _take_up(self, stream: BinaryIO) -> None:
        """Hashes what an earlier call left, from disk: it may be torn or altered."""
        if os.fstat(stream.fileno()).st_size > self.file.size:
            stream.truncate(0)
        self._checksum = checksum_of(self.file, stream)
        self._spliced = self._checksum.count > 0
        self._keep(self._checksum.count)

    def _fill(self, stream: BinaryIO) -> None:
        patience, furthest = Patience(self._together.pause), self._checksum.count
        while True:
            try:
                if self._checksum.count < self.file.size:
                    self._receive(stream)
                self._compare()
                return
            except Retry as retry:
                if retry.start_over:
                    self._start_over(stream)
                self._spliced = self._checksum.count > 0
                patience.wait(retry, progressed=self._checksum.count > furthest)
                furthest = max(furthest, self._checksum.count)
                self._check_stop()
            except Refused as refused:
                if not self._spliced or refused.code not in WRONG_BYTES:
                    raise
                self._start_over(stream)

    def _receive(self, stream: BinaryIO) -> None:
        with self._files.open_at(self.file, self._checksum.count) as (start, chunks):
            if start != self._checksum.count:
                self._start_over(stream)
            for chunk in chunks:
                self._check_stop()
                if self._checksum.count + len(chunk) > self.file.size:
                    more = self._checksum.count + len(chunk)
                    sentence = "More bytes come than were listed. The file changed, or something answers for the hub."
                    raise Refused(Refusal("hub.too_long", self.file.path, more, self.file.size, sentence))
                _write_all(stream, chunk)
                self._checksum.update(chunk)
                self.received += len(chunk)
                self._together.tally.add(len(chunk))
        if self._checksum.count < self.file.size:
            sentence = (
                f"{self.file.path} ended after {self._checksum.count:,} of {self.file.size:,} bytes. Run it once more."
            )
            raise Retry(Temporary(sentence, code="hub.truncated", where=self.file.path))

    def _compare(self) -> None:
        if not self._checksum.agrees:
            sentence = (
                f"The {self._checksum.kind} of {self.file.path} is not the listed one, so its bytes were thrown away. "
                "Resolve the reference again; if it stays so, tell the repository's owner or the mirror's operator."
            )
            raise Refused(
                Refusal("hub.digest", self.file.path, self._checksum.measured, self._checksum.expected, sentence)
            )

    def _start_over(self, stream: BinaryIO) -> None:
        stream.seek(0)
        stream.truncate(0)
        self._together.tally.add(-self._checksum.count)
        self.kept = 0
        self._checksum, self._spliced = Checksum(self.file), False

    def _keep(self, count: int) -> None:
        self.kept = count
        self._together.tally.add(count)

    def _check_stop(self) -> None:
        if self._together.stop.is_set():
            raise Stopped


def _write_all(stream: BinaryIO, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[stream.write(view) :]


def no_space(folder: Path, needed: int, there: int) -> InputOutput:
    more = needed - there
    sentence = f"{folder} needs {needed:,} bytes free and has {there:,}. Free {more:,} bytes, or use another disk."
    return InputOutput(sentence, code="hub.no_space", where=str(folder))
