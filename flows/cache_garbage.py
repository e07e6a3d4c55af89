"""What of the job cache can go: by age first, then the oldest until the rest fits a size; never a running job's."""

import fcntl
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CachedJob:
    """folder: a finished or unfinished job's; size in bytes; used: when a run last made or took it, since the epoch."""

    folder: Path
    size: int
    used: float


def cached_jobs(work: Path) -> list[CachedJob]:
    """Every job's folder below work/jobs, the oldest first."""
    found = []
    for folder in (work / "jobs").glob("*/*"):
        if folder.is_dir() and folder.name != "last":
            files = [path.lstat() for path in folder.rglob("*")]
            used = max([folder.lstat().st_mtime, *(status.st_mtime for status in files)])
            found.append(CachedJob(folder, sum(status.st_size for status in files), used))
    return sorted(found, key=lambda job: (job.used, str(job.folder)))


def superfluous(jobs: Sequence[CachedJob], *, now: float, age_s: float, most_bytes: int | None) -> list[CachedJob]:
    """Those older than `age_s`, and the oldest of the others while all that stays is more than `most_bytes`."""
    old = [job for job in jobs if job.used < now - age_s]
    rest = [job for job in jobs if job.used >= now - age_s]
    left = sum(job.size for job in rest)
    while rest and most_bytes is not None and left > most_bytes:
        left -= rest[0].size
        old.append(rest.pop(0))
    return old


def remove(job: CachedJob) -> bool:
    """Whether it is gone: a job that runs now holds its lock, and stays."""
    name = job.folder.name.removesuffix(".unfinished")
    lock = job.folder.with_name(f"{name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(job.folder)
    return True
