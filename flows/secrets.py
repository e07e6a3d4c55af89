"""Secrets of a run: files in memory that only this process keeps alive, handed to jobs by path.

Never parameters, labels, environment of a job, or log lines. Nothing is written to a disk, so nothing stays behind
however the run ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill.hub.source import given_token

SOURCES = {"hf_token": given_token}
"""Secret -> what the environment gives of it."""


@contextmanager
def secret_files() -> Iterator[dict[str, Path]]:
    """Name -> path of a memory file of this process (Linux: memfd_create), for each secret the environment gives."""
    found, descriptors = {}, []
    try:
        for secret, given in SOURCES.items():
            if value := given():
                descriptor = os.memfd_create(secret, os.MFD_CLOEXEC)
                descriptors.append(descriptor)
                os.write(descriptor, value.encode())
                found[secret] = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        yield found
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
