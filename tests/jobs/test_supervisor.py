import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.supervisor import write_secrets
from tests.support.processes import runs
from tests.support.waiting import GUARD_S, until

ROOT = Path(__file__).resolve().parents[2]
# A shell's job, which has begun long before a deadline of a second also where Python would not have.
SLEEP = ["sh", "-c", "sleep 600 & echo $!; wait"]


def _supervised(job: str | list[str], seconds: float = 600) -> subprocess.Popen[str]:
    """job: Python code, or a command."""
    command = [sys.executable, "-c", job] if isinstance(job, str) else job
    script = f"import sys; from jobs.supervisor import supervise; sys.exit(supervise({command!r}, {seconds}))"
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )


def _grandchild(supervisor: subprocess.Popen[str]) -> int:
    assert supervisor.stdout
    return int(supervisor.stdout.readline())


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("pass", 0),
        ("raise SystemExit(65)", 65),
        ("import os; os.kill(os.getpid(), 15)", 143),
        ("import os; os.abort()", 134),
    ],
)
def test_the_jobs_ending_is_the_supervisors(code: str, ending: int) -> None:
    with _supervised(code) as supervisor:
        assert supervisor.wait(GUARD_S) == ending


def test_end_of_input_kills_the_job_and_its_children() -> None:
    with _supervised(SLEEP) as supervisor:
        grandchild = _grandchild(supervisor)
        assert runs(grandchild)
        assert supervisor.stdin
        supervisor.stdin.close()
        assert supervisor.wait(GUARD_S) == 137
        until(lambda: not runs(grandchild), "the child ends")


def test_past_the_deadline_the_job_and_its_children_are_killed() -> None:
    with _supervised(SLEEP, seconds=1) as supervisor:
        grandchild = _grandchild(supervisor)
        assert supervisor.wait(GUARD_S) == 124
        until(lambda: not runs(grandchild), "the child ends")


def test_what_a_job_leaves_behind_ends_with_it() -> None:
    code = "import subprocess; g = subprocess.Popen(['sleep', '600']); print(g.pid, flush=True)"
    with _supervised(code) as supervisor:
        grandchild = _grandchild(supervisor)
        assert supervisor.wait(GUARD_S) == 0
        until(lambda: not runs(grandchild), "the child ends")


def test_a_signal_is_passed_on_to_the_job() -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *a: sys.exit(9)); print(0, flush=True); time.sleep(600)"
    with _supervised(code) as supervisor:
        _grandchild(supervisor)
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(GUARD_S) == 9


def test_the_job_ends_when_the_supervisor_itself_is_killed() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with _supervised(code) as supervisor:
        job = _grandchild(supervisor)
        supervisor.kill()
        supervisor.wait(GUARD_S)
        until(lambda: not runs(job), "the job ends")


def test_secrets_become_files_that_only_the_job_reads(tmp_path: Path) -> None:
    write_secrets(json.dumps({"hf_token": "a\nb"}).encode() + b"\n", tmp_path)
    written = tmp_path / "hf_token"
    assert written.read_text() == "a\nb"
    assert os.stat(written).st_mode & 0o777 == 0o400
