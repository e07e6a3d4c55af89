"""Files that are whole or not there: written beside the final name, synced, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from draftmill.place_beside import place_beside


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a path on the same filesystem to write to. On success its bytes are synced and it takes the name `path`, in
    place of what had it; on any exception it is gone. Raises FileNotFoundError when nothing was written, OSError."""
    with place_beside(path) as place:
        beside = place / path.name
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
        with suppress(OSError):  # the file itself is safe by then
            sync_folder(path.parent)


def write_whole(path: Path, content: str | bytes) -> None:
    """Text (as UTF-8) or bytes, whole or not at all."""
    with whole_file(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def sync_folder(folder: Path) -> None:
    """A name in it outlives a loss of power. Raises OSError, also where a filesystem does not sync folders."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
