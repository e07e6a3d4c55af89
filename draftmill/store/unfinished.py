"""Uploads in parts that ended early, noted on the publisher's machine, so that the next try goes on with them.

FOLDER/<sha256 of server, object, content and size of parts> holds the server's name for the upload. Its writer holds a
kernel lock on the file: of two publishers of one object one has the note, and the other uploads for itself. So nobody
ever writes into an upload that somebody else completes.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_json

LONGEST_ID = 4096


class Note:
    """upload_id: of the upload that was begun before, None where there is none. Without a file nothing is noted."""

    def __init__(self, path: Path | None = None, descriptor: int = -1) -> None:
        self._path, self._descriptor = path, descriptor
        self.upload_id = (os.pread(descriptor, LONGEST_ID, 0).decode(errors="replace") or None) if path else None

    @property
    def is_kept(self) -> bool:
        return self._path is not None

    def write(self, upload_id: str) -> None:
        """Before the first part goes up."""
        if self._path:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, upload_id.encode(), 0)

    def remove(self) -> None:
        if self._path:
            self._path.unlink(missing_ok=True)


@contextmanager
def noted(folder: Path | None, *upload: Any) -> Iterator[Note]:
    """The note of this upload (JSON values that tell it from others), or an empty one that keeps nothing: without a
    folder, or where another process holds it. Raises OSError."""
    if folder is None:
        yield Note()
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / sha256_json(upload)[:32]
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have removed it in between.
            is_ours = path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())
        except BlockingIOError:
            is_ours = False
        yield Note(path, descriptor) if is_ours else Note()
    finally:
        os.close(descriptor)
