"""Folders that are whole or not there: filled beside the final name, synced, then renamed."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill.place_beside import place_beside
from draftmill.whole_file import sync_folder


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder beside `folder` to write synced files into, which takes that name at the end; on any exception it
    is gone. `folder` must not be there, or be empty: else FileExistsError at the end."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with place_beside(folder) as partial:
        yield partial
        partial.chmod(0o755)
        sync_folder(partial)
        try:
            partial.rename(folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder)) from error
            raise
        sync_folder(folder.parent)
