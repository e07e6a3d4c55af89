"""What goes into a store: bytes or a file, in pieces, hashed as they pass."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from draftmill.digest import CHUNK
from draftmill.outcome import InputOutput

Body = Path | bytes


def size_of(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else body.stat().st_size


def pieces_of(body: Body, size: int = CHUNK) -> Iterator[bytes]:
    """Pieces of `size` bytes, the last one shorter. An empty body has one empty piece."""
    if isinstance(body, bytes):
        yield from (body[at : at + size] for at in range(0, max(len(body), 1), size))
        return
    with body.open("rb") as file:
        yield file.read(size)
        while piece := file.read(size):
            yield piece


def verified(body: Body, sha256: str, size: int = CHUNK) -> Iterator[bytes]:
    """The body's pieces, then InputOutput("store.source_differs") if they do not have this sha256."""
    digest = hashlib.sha256()
    for piece in pieces_of(body, size):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != sha256:
        where = "the data" if isinstance(body, bytes) else str(body)
        raise InputOutput(
            f"{where} is not what its description says: sha256 {digest.hexdigest()}, described was {sha256}. "
            "It changed after it was hashed; run the job that made it again.",
            code="store.source_differs",
            where=where,
        )
