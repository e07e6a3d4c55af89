"""SIGKILL of the whole command at each job: nothing half-written is left, and the same command finishes the rest."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.mill import PLAIN, MillMaker, jobs_run, published_files

ARGUMENTS = ("convert", PLAIN, "--quant", "Q8_0", "--json")
CHAIN = {
    "download": f"download {PLAIN}",
    "intake": f"intake {PLAIN}",
    "tokenizer": "check tokenizer",
    "convert": "convert to F16",
    "quantize": "quantize to Q8_0",
    "check": "check F16",
}


def kill_when(process: subprocess.Popen[str], seen: Path, pattern: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(seen.glob(pattern)):
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            return
        time.sleep(0.002)
    pytest.fail(f"{pattern} never showed: exit {process.poll()}, {process.communicate()}")


def living_jobs(work: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(work).encode() in command and b"jobs." in command:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("job", ["download", "tokenizer", "quantize", "check"])
def test_a_run_killed_at_a_job_is_finished_by_the_same_command(job: str, mill: MillMaker, tmp_path: Path) -> None:
    here = mill()
    process = here.start(*ARGUMENTS)
    kill_when(process, here.work / "jobs" / job, "*.unfinished/request.json")
    deadline = time.monotonic() + 5
    while living_jobs(here.work) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert living_jobs(here.work) == [], "the job outlived its run"
    assert published_files(tmp_path / "store") == {}

    code, ending, err = here.run(*ARGUMENTS)
    assert (code, err) == (0, "")
    assert len(published_files(tmp_path / "store")) == len(ending["manifest"]["files"])
    ran, order = jobs_run(ending), list(CHAIN.values())
    repeated = [title for title in ran if any(title.startswith(before) for before in order[: order.index(CHAIN[job])])]
    assert repeated == [], "a finished job was run again"
    assert any(title.startswith(CHAIN[job]) for title in ran)


def test_a_run_killed_while_publishing_leaves_whole_objects_only(mill: MillMaker, tmp_path: Path) -> None:
    here, store = mill(), tmp_path / "store"
    process = here.start(*ARGUMENTS)
    kill_when(process, store, "models/*/*/*/*.gguf")
    for path in store.rglob("models/**/*"):
        if path.is_file() and path.name != "manifest.json":
            finished = [p for p in here.work.rglob(path.name) if p.parent.name == "out"]
            if finished:
                assert path.read_bytes() == finished[0].read_bytes()
    code, ending, _ = here.run(*ARGUMENTS)
    assert code == 0
    assert jobs_run(ending) == []
    assert json.loads(next(store.rglob("manifest.json")).read_text())["recipe"] == ending["manifest"]["recipe"]
    assert len(published_files(store)) == len(ending["manifest"]["files"])
