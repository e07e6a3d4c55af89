"""The job cache: finished jobs, found again by key.

    <work>/jobs/<job>/<key>/             finished: request.json, result.json, out/, key.json
    <work>/jobs/<job>/<key>.unfinished/  a job that runs or was killed
    <work>/jobs/<job>/last/<subject>     the key fields of the subject's newest finished job: says why a key missed
    <work>/measured/<run>/               beside it: what a measurement is given while it runs

key = sha256 of {job, code, parameters, inputs}, where an input is the digest of its files' paths, sizes and sha256.
A kernel lock on `<key>.lock` keeps two runs from doing the same job at once; a shared one keeps a finished job that is
read from being removed.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file, sha256_json
from draftmill.whole_file import write_whole
from jobs.contract import Output, Result

MEASURED = "measured"
RESUMES = frozenset({"download"})
"""Jobs that go on with what a killed run left (they hash it again)."""


def digest_of(files: list[Output]) -> str:
    """One digest for an input folder."""
    return sha256_json(sorted([file.path, file.size, file.sha256] for file in files))


@dataclass(frozen=True)
class JobKey:
    """All that a job's outputs depend on."""

    job: str
    code: str
    parameters: dict[str, Any]
    inputs: dict[str, str]

    def fields(self) -> dict[str, Any]:
        return {"job": self.job, "code": self.code, "parameters": self.parameters, "inputs": self.inputs}

    @property
    def digest(self) -> str:
        return sha256_json(self.fields())


@dataclass(frozen=True)
class Finished:
    """A job in the cache. sha256: of result.json as it was then, since a run of the same key may replace the folder."""

    folder: Path
    result: Result
    sha256: str

    @property
    def out(self) -> Path:
        return self.folder / "out"


class JobCache:
    def __init__(self, work: Path) -> None:
        self.jobs = work / "jobs"

    def find(self, key: JobKey) -> Finished | None:
        """The finished job, or None when it is not there or its outputs are no longer whole (sizes are compared)."""
        folder = self.jobs / key.job / key.digest[:32]
        try:
            said = (folder / "result.json").read_bytes()
            result = Result.model_validate_json(said)
            # What is used stays: draftmill gc removes the oldest.
            os.utime(folder)
            whole = all(_is_whole(folder / "out" / output.path, output.size) for output in result.outputs)
        except (OSError, ValueError):
            return None
        return Finished(folder, result, hashlib.sha256(said).hexdigest()) if whole else None

    def why_missed(self, key: JobKey, subject: str) -> str:
        """Which field of the key changed since the subject's newest finished job of this name."""
        try:
            last = json.loads(self._last(key.job, subject).read_text())
        except (OSError, ValueError):
            return "never run for this"
        now = key.fields()
        changed = []
        for field in ("code", "parameters", "inputs"):
            before, after = last.get(field), now[field]
            if isinstance(before, dict) and isinstance(after, dict):
                names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
                changed += [f"{field}.{name}" for name in names]
            elif before != after:
                changed.append(field)
        return "changed: " + ", ".join(changed) if changed else "its outputs are gone"

    @contextmanager
    def claim(self, key: JobKey) -> Iterator[Path]:
        """The unfinished folder of the key, held by a lock; emptied unless the job resumes."""
        base = self.jobs / key.job
        base.mkdir(parents=True, exist_ok=True)
        folder = base / f"{key.digest[:32]}.unfinished"
        with (base / f"{key.digest[:32]}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists() and key.job not in RESUMES:
                shutil.rmtree(folder)
            folder.mkdir(exist_ok=True)
            yield folder

    @contextmanager
    def reading(self, folders: Iterable[Path]) -> Iterator[None]:
        """Keeps the finished jobs that `folders` lie in from being removed or replaced. Waits while one is."""
        jobs = self.jobs.resolve()
        inside = [path.relative_to(jobs).parts for path in map(Path.resolve, folders) if path.is_relative_to(jobs)]
        with ExitStack() as held:
            for job, key in sorted({parts[:2] for parts in inside if len(parts) > 2}):
                lock = held.enter_context((jobs / job / f"{key}.lock").open("a"))
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def keep(self, key: JobKey, unfinished: Path, result: Result, subject: str) -> Finished:
        """Makes a finished job of the claimed folder."""
        write_whole(unfinished / "key.json", json.dumps(key.fields(), indent=1))
        sha256 = sha256_file(unfinished / "result.json")
        folder = unfinished.with_name(key.digest[:32])
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
        last = self._last(key.job, subject)
        last.parent.mkdir(exist_ok=True)
        write_whole(last, json.dumps(key.fields()))
        return Finished(folder, result, sha256)

    def drop(self, unfinished: Path, result: Result) -> None:
        """Removes what a refused job left. What a broken one left stays to be looked into, until the next try."""
        if result.outcome == "refused":
            shutil.rmtree(unfinished)

    def _last(self, job: str, subject: str) -> Path:
        return self.jobs / job / "last" / sha256_json(subject)[:32]


def _is_whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
