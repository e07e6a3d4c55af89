"""Disks of a few megabytes, to fill them up."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk(folder: Path, mib: int) -> Iterator[Path]:
    """`folder` as a disk of so many MiB; the test is skipped by name where it cannot be mounted."""
    folder.mkdir(parents=True)
    if os.geteuid() or _run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)):
        pytest.skip("only root mounts a small disk")
    try:
        yield folder
    finally:
        assert not _run("umount", "--lazy", str(folder))


def enlarge(folder: Path, mib: int) -> None:
    assert not _run("mount", "-o", f"remount,size={mib}m", str(folder))


def _run(*command: str) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode
