"""What of the work folder can go: jobs of the cache by age first, then the oldest until the rest fits a size, never one
that runs or is read; and what measurements that were killed left.

Runs go on beside this, so that whatever was listed may be gone, renamed or used when it is looked at again.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftmill.store.garbage import DAY_S
from flows.cache import MEASURED


@dataclass(frozen=True)
class CachedJob:
    """folder: a finished or unfinished job's; size in bytes; used: when a run last made or took it, since the epoch."""

    folder: Path
    size: int
    used: float


@dataclass(frozen=True)
class Staged:
    """folder: what a measurement was to be given; size in bytes, without what has another name elsewhere."""

    folder: Path
    size: int


def cached_jobs(work: Path) -> list[CachedJob]:
    """Every job's folder below work/jobs, the oldest first."""
    folders = [path for path in (work / "jobs").glob("*/*") if path.is_dir() and path.name != "last"]
    found = [job for job in map(_job_of, folders) if job]
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
    """Whether this removed it: a job that runs or is read now holds its lock and stays, as does one used meanwhile."""
    name = job.folder.name.removesuffix(".unfinished")
    lock = job.folder.with_name(f"{name}.lock")
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        now = _job_of(job.folder)
        if now is None or now.used > job.used:
            return False
        shutil.rmtree(job.folder)
    return True


def staged_long_ago(work: Path, *, now: float, age_s: float) -> list[Staged]:
    """The folders below work/measured that are older than `age_s`, and than a day: nothing locks them, and a
    measurement may wait for its device and then take hours."""
    found = []
    for folder in sorted((work / MEASURED).glob("*")):
        statuses = _statuses(folder)
        # Not of the files: those are links, with the times of the models.
        made = [status.st_mtime for status in statuses if stat.S_ISDIR(status.st_mode)]
        if made and max(made) < now - max(age_s, DAY_S):
            found.append(Staged(folder, sum(status.st_size for status in statuses[1:] if _is_alone(status))))
    return found


def remove_staged(staged: Staged) -> bool:
    """Whether it is gone."""
    shutil.rmtree(staged.folder, ignore_errors=True)
    return not staged.folder.exists()


def _is_alone(status: os.stat_result) -> bool:
    """A folder, or a file without another name."""
    return stat.S_ISDIR(status.st_mode) or status.st_nlink == 1


def _job_of(folder: Path) -> CachedJob | None:
    """None when it is gone."""
    statuses = _statuses(folder)
    if not statuses:
        return None
    return CachedJob(
        folder, sum(status.st_size for status in statuses[1:]), max(status.st_mtime for status in statuses)
    )


def _statuses(folder: Path) -> list[os.stat_result]:
    """Of the folder and then of all below it that is still there; nothing when the folder is gone."""
    try:
        found = [folder.lstat()]
    except FileNotFoundError:
        return []
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                found.append(Path(parent, name).lstat())
    return found
