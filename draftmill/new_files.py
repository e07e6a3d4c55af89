"""Files that appear together, in place of nothing: written beside their names, synced, then linked."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill.place_beside import place_beside
from draftmill.whole_file import sync_folder

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What filesystems without hard links say."""


@contextmanager
def new_files(main: Path, other: Path) -> Iterator[tuple[Path, Path]]:
    """Gives a path for each to write to. On success both take their names, `other` first, so that `main` is never
    without it; on any exception neither is there, and what a killed writer left goes with the next one.

    Both are in one folder. Raises FileExistsError where a name is taken, FileNotFoundError where one was not written,
    OSError.
    """
    with place_beside(main) as place:
        written = place / main.name, place / other.name
        yield written
        for path in written:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        given: list[Path] = []
        try:
            for path in reversed(written):
                _give(path, main.with_name(path.name))
                given.append(main.with_name(path.name))
            sync_folder(main.parent)
        except BaseException:
            for path in given:
                path.unlink(missing_ok=True)
            raise


def _give(path: Path, name: Path) -> None:
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if name.exists() or name.is_symlink():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from error
        path.rename(name)
