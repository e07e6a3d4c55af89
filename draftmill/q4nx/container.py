"""A Q4NX container on disk: memory-mapped read-only, its tensors as views, nothing decoded at open."""

import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.header import Entry, Header, read_header


class Container:
    """`tensors` by name, in the order of their bytes; `header` also holds gaps, trailing bytes and metadata.

    Pages of the map that were read stay in memory until `release` gives them back. When the file may be cut short
    while it is read (a map then ends the process), read the span of an Entry with ordinary reads instead.
    """

    def __init__(self, path: Path, size: int, header: Header, mapped: mmap.mmap) -> None:
        self.path = path
        self.size = size
        self.header = header
        self._map = mapped
        self._view = np.frombuffer(mapped, np.uint8)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a container for reading.

        Raises Refused (q4nx.not_regular_file, q4nx.file_changed, and what `read_header` raises), and OSError when the
        file cannot be read.
        """
        # O_NONBLOCK: opening a pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refused(
                    Refusal(
                        "q4nx.not_regular_file",
                        path.name,
                        "special file or folder",
                        "regular file",
                        "Put the container itself here.",
                    )
                )
            header = read_header(lambda offset, count: os.pread(descriptor, count, offset), status.st_size, path.name)
            try:
                mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
            except ValueError:
                raise Refused(
                    Refusal(
                        "q4nx.file_changed",
                        path.name,
                        os.fstat(descriptor).st_size,
                        status.st_size,
                        "The file was cut short while it was opened; wait until its writer is done.",
                    )
                ) from None
            return cls(path, status.st_size, header, mapped)
        finally:
            os.close(descriptor)

    @property
    def tensors(self) -> dict[str, Entry]:
        return self.header.tensors

    def bytes(self, name: str) -> np.ndarray:
        """The tensor's stored bytes, uint8 [nbytes], read-only, not copied. Raises KeyError."""
        entry = self.tensors[name]
        return self._view[entry.begin : entry.end]

    def release(self, name: str) -> None:
        """Gives the tensor's pages back to the system; views stay valid and are read again when touched."""
        entry = self.tensors[name]
        begin = -(-entry.begin // mmap.PAGESIZE) * mmap.PAGESIZE
        end = entry.end // mmap.PAGESIZE * mmap.PAGESIZE
        if end > begin:
            self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def close(self) -> None:
        """Unmaps the file, unless views of it are still held: then with the last of them."""
        self._view = np.empty(0, np.uint8)
        with suppress(BufferError):
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
