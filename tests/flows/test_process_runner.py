"""Jobs as plain processes: what they are given, and how their endings are told apart."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill.measurement.device.lock import LOCKS, device_lock
from draftmill.measurement.device.profiles import CPU
from flows.cache import JobCache
from flows.cache_garbage import cached_jobs, remove
from flows.chain import Chain, Input, JobEnded, Step
from flows.display import DISPLAY, Silent
from flows.runners import process
from flows.runners.process import ProcessRunner
from flows.runners.runner import Limits
from jobs.contract import Result
from tests.support.inputs import ROOT
from tests.support.processes import with_arguments
from tests.support.waiting import until


def run(
    tmp_path: Path, do: str, limits: Limits | None = None, **parameters: Any
) -> tuple[Result, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    result = ProcessRunner().run(
        "probe",
        tmp_path,
        inputs={},
        parameters={"do": do, **parameters},
        secrets={},
        limits=limits or Limits(timeout_s=300),
        events=events.append,
    )
    return result, events


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Makes tests/support/probe_job.py known as jobs.probe to the job's interpreter only."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(
        "import sys, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('jobs.probe', {str(ROOT / 'tests/support/probe_job.py')!r})\n"
        "sys.meta_path.insert(0, type('F', (), {'find_spec': staticmethod("
        "lambda name, *a: spec if name == 'jobs.probe' else None)}))\n"
    )
    monkeypatch.setattr("flows.runners.process.ROOT", f"{ROOT}:{folder}")


def test_a_job_gets_no_environment_but_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("HF_TOKEN", "canary")
    result, _ = run(tmp_path, "report")
    assert result.outcome == "ok"
    assert "canary" not in json.dumps(result.facts["environment"])
    assert [output.path for output in result.outputs] == ["product"]


def test_a_job_past_its_limit_is_ended_and_said_so(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "sleep", Limits(timeout_s=1.5))
    assert (result.outcome, result.error_code) == ("failed", "timeout")


def test_a_job_dies_with_its_runner(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; import flows.runners.process as p\n"
        f"p.ROOT = {process.ROOT!r}\n"
        "p.ProcessRunner().run('probe', Path(sys.argv[1]), inputs={}, parameters={'do': 'sleep'}, secrets={},"
        " limits=p.Limits(), events=lambda e: print(e, flush=True))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert "asleep" in parent.stdout.readline()
    assert with_arguments("jobs.probe", str(tmp_path))
    parent.kill()
    parent.wait()
    until(lambda: not with_arguments("jobs.probe", str(tmp_path)), "the job ends with its runner")


def test_a_job_finds_the_locks_that_this_host_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCKS, str(tmp_path / "locks"))
    given: dict[str, Any] = {"inputs": {}, "secrets": {}, "limits": Limits(timeout_s=300), "events": lambda event: None}
    folder = tmp_path / "job"
    folder.mkdir()
    with device_lock(CPU, run="another"):
        parameters = {"device": CPU.model_dump(mode="json")}
        result = ProcessRunner().run("preflight", folder, parameters=parameters, **given)
    assert result.facts["preflight"]["facts"]["held_by"].startswith("run another")


class Stopping(Silent):
    """Does something once the job says that it sleeps, and stops the runner."""

    def __init__(self, runner: ProcessRunner, first: Callable[[], None] = lambda: None) -> None:
        self.runner = runner
        self.first = first

    def event(self, title: str, event: dict[str, Any]) -> None:
        if event.get("message") == "asleep":
            self.first()
            self.runner.stop()


def test_a_runner_that_is_stopped_ends_its_job_begins_none_and_says_so(tmp_path: Path) -> None:
    runner = ProcessRunner()
    stopping = Stopping(runner)
    given: dict[str, Any] = {"inputs": {}, "secrets": {}, "limits": Limits(), "parameters": {"do": "sleep"}}
    running, later = tmp_path / "running", tmp_path / "later"
    for folder in (running, later):
        folder.mkdir()
    ended = runner.run("probe", running, events=lambda event: stopping.event("", event), **given)
    assert (ended.outcome, ended.error_code) == ("failed", "stopped")
    assert ended.error == "The run was stopped before job probe had ended."
    assert not with_arguments("jobs.probe", str(running))
    assert runner.run("probe", later, events=lambda event: None, **given) == ended
    assert list(later.iterdir()) == []


class Probed(ProcessRunner):
    """The probe's code has no digest of its own."""

    def code_digest(self, job: str, parameters: dict[str, Any]) -> str:
        return "code"


def test_what_a_running_job_reads_is_not_removed(tmp_path: Path) -> None:
    runner, cache = Probed(), JobCache(tmp_path)
    chain = Chain(runner, cache)
    read = chain.run(Step("probe", "make", "subject", {"do": "report"}))
    [listed] = cached_jobs(tmp_path)
    removed: list[bool] = []
    token = DISPLAY.set(Stopping(runner, lambda: removed.append(remove(listed))))
    try:
        with pytest.raises(JobEnded) as ended:
            chain.run(Step("probe", "read", "subject", {"do": "sleep"}, {"made": Input.of(read.finished)}))
    finally:
        DISPLAY.reset(token)
    assert ended.value.code == "stopped"
    assert removed == [False]
    assert (read.finished.out / "product").read_text() == "made inside"
    assert remove(listed)
