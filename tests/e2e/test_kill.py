"""SIGKILL of the whole command at one job after the other: nothing half-written is left, no finished job is run again,
and the same command finishes the rest."""

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.e2e.mill import PLAIN, Mill, MillMaker, jobs_run, published_files
from tests.support.processes import with_arguments
from tests.support.waiting import until

ARGUMENTS = ("convert", PLAIN, "--quant", "Q8_0", "--json")
JOBS = ("download", "intake", "tokenizer", "convert", "quantize", "check")


def kill_when(process: subprocess.Popen[str], seen: Path, pattern: str) -> None:
    def shows() -> bool:
        assert process.poll() is None, f"{pattern} never showed: {process.communicate()}"
        return any(seen.glob(pattern))

    until(shows, pattern, within_s=300, every_s=0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def finished_jobs(work: Path) -> dict[Path, tuple[int, int]]:
    """Every finished job's result, and which file of which time that is; the hub is asked anew each time."""
    results = [path for job in JOBS for path in (work / "jobs" / job).glob("*/result.json")]
    status = {path: path.stat() for path in results if ".unfinished" not in str(path)}
    return {path: (found.st_ino, found.st_mtime_ns) for path, found in status.items()}


def check_nothing_is_lost(here: Mill, before: dict[Path, tuple[int, int]]) -> None:
    # A killed process ends when the kernel has written what it was syncing, which a busy disk makes long.
    until(lambda: not with_arguments(str(here.work), "jobs."), "the jobs end with their run")
    assert before.items() <= finished_jobs(here.work).items(), "a finished job was run again"


def test_a_run_killed_at_one_job_after_the_other_and_while_it_publishes_is_finished_by_the_same_command(
    mill: MillMaker, tmp_path: Path
) -> None:
    here, store = mill(), tmp_path / "store"
    before: dict[Path, tuple[int, int]] = {}
    for job in ("download", "tokenizer", "quantize", "check"):
        process = here.start(*ARGUMENTS)
        kill_when(process, here.work / "jobs" / job, "*.unfinished/request.json")
        check_nothing_is_lost(here, before)
        assert published_files(store) == {}
        before = finished_jobs(here.work)
        done = {path.parent.parent.name for path in before}
        assert done >= set(JOBS[: JOBS.index(job)]), "what was finished before the kill is kept"
        assert job not in done

    process = here.start(*ARGUMENTS)
    kill_when(process, store, "models/*/*/*/*.gguf")
    check_nothing_is_lost(here, before)
    before = finished_jobs(here.work)
    for path in store.rglob("models/**/*"):
        if path.is_file() and path.name != "manifest.json":
            finished = [p for p in here.work.rglob(path.name) if p.parent.name == "out"]
            if finished:
                assert path.read_bytes() == finished[0].read_bytes()

    code, ending, err = here.run(*ARGUMENTS)
    assert (code, err) == (0, "")
    assert jobs_run(ending) == []
    check_nothing_is_lost(here, before)
    assert json.loads(next(store.rglob("manifest.json")).read_text())["recipe"] == ending["manifest"]["recipe"]
    assert len(published_files(store)) == len(ending["manifest"]["files"])
