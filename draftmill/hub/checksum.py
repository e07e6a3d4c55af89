"""The digest that a listing gives for a file, computed as the bytes stream by."""

import hashlib
from pathlib import Path
from typing import BinaryIO

from draftmill.hub.listing import ListedFile

CHUNK = 1 << 20


class Checksum:
    """SHA-256 where the listing has it, else the git blob id. A large file's blob id is that of its LFS pointer and
    says nothing about its content, so it is never looked at beside a sha256 (huggingface_hub #3018)."""

    def __init__(self, file: ListedFile) -> None:
        if file.sha256:
            self.kind, self.expected, self._hash = "sha256", file.sha256, hashlib.sha256()
        else:
            assert file.blob_id is not None  # noqa: S101 - ListedFile holds one of the two
            self.kind, self.expected, self._hash = "git blob id", file.blob_id, git_blob(file.size)
        self.count = 0

    def update(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.count += len(chunk)

    @property
    def measured(self) -> str:
        return self._hash.hexdigest()

    @property
    def agrees(self) -> bool:
        return self.measured == self.expected


def git_blob(size: int) -> "hashlib._Hash":
    """The hash that git names a file's content by, before its first byte."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def checksum_of(file: ListedFile, stream: BinaryIO) -> Checksum:
    """Reads the stream to its end."""
    checksum = Checksum(file)
    while chunk := stream.read(CHUNK):
        checksum.update(chunk)
    return checksum


def digests_of(path: Path) -> tuple[str, str]:
    """(sha256, git blob id) of a file's content, read once."""
    sha256, blob = hashlib.sha256(), git_blob(path.stat().st_size)
    with path.open("rb", buffering=0) as stream:
        while chunk := stream.read(CHUNK):
            sha256.update(chunk)
            blob.update(chunk)
    return sha256.hexdigest(), blob.hexdigest()
