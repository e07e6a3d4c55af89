"""A hidden folder to write in, beside the name that what is written will take.

Its writer holds a lock on it, which the kernel frees however the writer ends. So the next writer of the same name knows
what a killed one left, and removes it.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SUFFIX = ".draftmill"
_PLACE = re.compile(rf"\.(.+)\.[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")
"""Eight characters are what `tempfile.mkdtemp` puts in between."""


@contextmanager
def place_beside(final: Path) -> Iterator[Path]:
    """Gives an empty folder on the filesystem of `final`, gone afterwards unless it was renamed. Raises OSError."""
    clear_left(final)
    place, lock = _make(final)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def is_place(name: str) -> bool:
    """Whether a folder of this name is one of these, of whatever is being written."""
    return _PLACE.fullmatch(name) is not None


def clear_left(final: Path) -> None:
    """Removes what writers of `final` that were killed left beside it. Raises OSError where its folder is not there."""
    found: list[str] = []
    with suppress(PermissionError):  # a folder may be for writing only
        named = ((name, _PLACE.fullmatch(name)) for name in os.listdir(final.parent))
        found = [name for name, match in named if match and match[1] == final.name]
    for place in map(final.with_name, found):
        with suppress(OSError):  # its writer lives, or it is somebody else's
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _take_back(place)
                shutil.rmtree(place)
            finally:
                os.close(lock)


def _take_back(place: Path) -> None:
    """Of files that were to appear together (`new_files`), those that had appeared when the writer was killed."""
    files = [each for each in place.iterdir() if each.is_file()]
    appeared = [each for each in files if _same(each, place.with_name(each.name))]
    for each in appeared if len(appeared) < len(files) else ():
        place.with_name(each.name).unlink()


def _same(one: Path, other: Path) -> bool:
    return other.exists() and os.path.samefile(one, other)


def _make(final: Path) -> tuple[Path, int]:
    while True:
        place = Path(tempfile.mkdtemp(_SUFFIX, f".{final.name}.", final.parent))
        # Until it is locked, another writer may take it for one left behind.
        try:
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # of a filesystem without locks, on which nothing is ever removed
            fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(place), os.fstat(lock)):
                return place, lock
        os.close(lock)
