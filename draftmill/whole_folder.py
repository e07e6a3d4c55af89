"""Folders that are whole or not there: filled beside the final name, synced, then renamed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill.place_beside import place_beside
from draftmill.whole_file import sync_folder


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder beside `folder` to write synced files into, which takes that name at the end; on any exception it
    is gone. `folder` must not be there, or be empty: else OSError at the end."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with place_beside(folder) as partial:
        yield partial
        partial.chmod(0o755)
        sync_folder(partial)
        partial.rename(folder)
        sync_folder(folder.parent)
