"""Whole objects out of a store, verified."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from draftmill.progress import Progress, silent
from draftmill.store.endings import damaged
from draftmill.store.interface import Store
from draftmill.whole_file import whole_file


def verified(pieces: Iterator[bytes], sha256: str, where: str) -> Iterator[bytes]:
    """The pieces, then InputOutput("store.damaged") if they do not have this sha256."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != sha256:
        raise damaged(where, digest.hexdigest(), sha256)


def get(store: Store, key: str) -> bytes:
    """A small object's bytes."""
    return b"".join(store.read(key))


def sha256_of(store: Store, key: str) -> str:
    """The digest of the bytes that really come back."""
    digest = hashlib.sha256()
    for piece in store.read(key):
        digest.update(piece)
    return digest.hexdigest()


def fetch(store: Store, key: str, target: Path, *, sha256: str, size: int, progress: Progress = silent) -> None:
    """Writes an object to `target`: beside it first, renamed only when the bytes have this sha256."""
    done = 0
    with whole_file(target) as beside, beside.open("wb") as file:
        for piece in verified(store.read(key), sha256, store.where(key)):
            file.write(piece)
            done += len(piece)
            progress(key, done, size)
