"""A file that arrives in parts, in any order, and is taken up again after whatever ended the process.

Beside the final name NAME lie, until it is whole,

    .NAME.<sha256, 8 characters>.partial   the bytes, of full length; what did not arrive is a hole
    .NAME.<sha256, 8 characters>.parts     one character a part: "+" when all its bytes were written, else "."

The parts file is only a hint at what need not be asked for again: after a power failure it may claim what the disk
never got. What decides is the sha256 of the bytes as they lie on disk, read in order as far as they are there.
"""

import fcntl
import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from draftmill.digest import sha256_file
from draftmill.outcome import InputOutput

PART = 16 << 20
"""Bytes in a part, the last one excepted. Part of the format: a parts file of another length is not used."""
_THERE, _ABSENT = b"+", b"."
_HASHED_AT_ONCE = 1 << 20  # fits a core's own cache, and is worth the wait for Python's lock


class PartialFile:
    """`size` in bytes. A context manager; inside, `write` takes a part's next bytes, each part from one thread.

    Raises InputOutput("pull.in_use") when another process is writing it, and OSError.
    """

    def __init__(self, target: Path, size: int, sha256: str) -> None:
        self.target, self.size, self.sha256 = target, size, sha256
        self._partial = target.with_name(f".{target.name}.{sha256[:8]}.partial")
        self._journal = self._partial.with_suffix(".parts")
        self.count = -(-size // PART)
        self._fd = self._journal_fd = -1
        self._hashing = threading.Lock()
        self._buffer = memoryview(bytearray(_HASHED_AT_ONCE))
        self._start_over()

    def _start_over(self) -> None:
        self._digest, self._hashed = hashlib.sha256(), 0
        self._upto = [self.span(part)[0] for part in range(self.count)]
        """Behind each part's last byte that was written."""

    def __enter__(self) -> Self:
        self._fd = self._locked()
        os.ftruncate(self._fd, self.size)
        self._journal_fd = os.open(self._journal, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        found = os.pread(self._journal_fd, self.count + 1, 0)
        if len(found) == self.count and not found.strip(_THERE + _ABSENT):
            self._upto = [self.span(part)[mark == _THERE[0]] for part, mark in enumerate(found)]
        else:
            self._reset_journal()
        return self

    def _locked(self) -> int:
        descriptor = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have given it its final name in between.
            is_ours = os.path.exists(self._partial) and os.path.samestat(os.fstat(descriptor), os.stat(self._partial))
        except BlockingIOError:
            is_ours = False
        if not is_ours:
            os.close(descriptor)
            raise InputOutput(
                f"{self.target} is being written by another pull; wait for it, or choose another folder.",
                code="pull.in_use",
                where=str(self.target),
            )
        return descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._journal_fd)
        os.close(self._fd)

    def span(self, part: int) -> tuple[int, int]:
        """The bytes of a part: (first, behind the last)."""
        return part * PART, min((part + 1) * PART, self.size)

    def missing(self) -> list[int]:
        """The parts that are not there, in order."""
        return [part for part, upto in enumerate(self._upto) if upto < self.span(part)[1]]

    @property
    def there(self) -> int:
        """Bytes in the parts that are there."""
        return self.size - sum(stop - start for start, stop in map(self.span, self.missing()))

    def write(self, part: int, piece: bytes) -> None:
        """The next bytes of a part. A thread that comes by hashes on, so that little is left to hash at the end."""
        view = memoryview(piece)
        while view:
            written = os.pwrite(self._fd, view, self._upto[part])
            self._upto[part] += written
            view = view[written:]
        is_there = self._upto[part] == self.span(part)[1]
        if is_there:
            os.pwrite(self._journal_fd, _THERE, part)
            # Lets the kernel begin to write it out, so that the sync at the end finds little to do.
            os.posix_fadvise(self._fd, part * PART, PART, os.POSIX_FADV_DONTNEED)
        if (is_there or self._upto[part] % _HASHED_AT_ONCE == 0) and self._hashing.acquire(blocking=False):
            try:
                self._hash_on()
            finally:
                self._hashing.release()

    def fill(self, at: int, piece: bytes) -> int:
        """Of a stream from the first byte on, the bytes from `at`: writes those that are not there, and gives how many
        they were. From one thread."""
        written, end = 0, at + len(piece)
        while at < end:
            part = at // PART
            stop = min(self.span(part)[1], end)
            start = max(at, self._upto[part])
            if start < stop:
                self.write(part, piece[len(piece) - end + start : len(piece) - end + stop])
                written += stop - start
            at = stop
        return written

    def _hash_on(self) -> None:
        """Hashes what lies on disk from where it stopped up to the first byte that is not there."""
        while self._hashed < self.size and (ready := self._upto[self._hashed // PART] - self._hashed) > 0:
            count = os.preadv(self._fd, [self._buffer[:ready]], self._hashed)
            if not count:
                raise OSError(f"{self._partial} became shorter while it was written")
            self._digest.update(self._buffer[:count])
            self._hashed += count

    def measure(self) -> str:
        """The sha256 of all bytes. Every part has to be there."""
        with self._hashing:
            self._hash_on()
        return self._digest.hexdigest()

    def finish(self) -> None:
        """Gives it its final name. The caller has compared its sha256."""
        os.fsync(self._fd)
        os.rename(self._partial, self.target)
        self._journal.unlink(missing_ok=True)

    def throw_away(self) -> None:
        """What arrived is wrong: starts from nothing."""
        os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, self.size)
        self._start_over()
        self._reset_journal()

    def remove(self) -> None:
        for path in (self._journal, self._partial):
            path.unlink(missing_ok=True)

    def _reset_journal(self) -> None:
        os.ftruncate(self._journal_fd, 0)
        os.pwrite(self._journal_fd, _ABSENT * self.count, 0)


def is_whole(target: Path, size: int, sha256: str) -> bool:
    """Whether the file is there, no link, and has these bytes."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return not target.is_symlink() and target.stat().st_size == size and sha256_file(target) == sha256
    return False
