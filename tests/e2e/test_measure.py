"""A pair measured from the command line: here and now, as a flow, and in a container; the report in the store."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.measurement.record import Accepted, Speed, load
from draftmill.measurement.speed_results import speed_result
from tests.support import pairs
from tests.support.engine import engine
from tests.support.inputs import ROOT
from tests.support.processes import with_variables
from tests.support.waiting import GUARD_S, until

VERDICTS = {0: {"faster", "slower", "no difference"}, 3: {"no verdict"}}


class Command:
    """The command line with a store, a work folder and a device lock of its own."""

    def __init__(self, folder: Path) -> None:
        self.store, self.work = folder / "store", folder / "work"
        self.locks = folder / "locks"
        self.started: list[subprocess.Popen[str]] = []
        self.environment = os.environ | {
            "DRAFTMILL_STORE": str(self.store),
            "DRAFTMILL_WORK": str(self.work),
            "DRAFTMILL_DEVICE_LOCKS": str(self.locks),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("draftmill")), "measure", *arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=400)
        return process.returncode, out, err


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def small(*, wrong: bool = False) -> list[str]:
    pair = pairs.small()
    draft = pairs.small_wrong_draft() if wrong else pair.draft
    return ["--target", str(pair.target), "--draft", str(draft), "--threads", "1", "--quick", "--form", "raw"]


@pytest.mark.slow
def test_speed_is_measured_and_its_report_written(command, tmp_path):
    code, out, err = command.run("speed", *small(), "--budget", "16", "--pairs", "6", "--report", str(tmp_path / "r"))
    record = load((tmp_path / "r" / "report.json").read_bytes())
    assert isinstance(record, Speed)
    result = speed_result(record)
    assert result.word in VERDICTS[code], err
    assert result.lossless == "identical"
    assert result.word in out
    assert (tmp_path / "r" / "report.html").is_file()
    assert (tmp_path / "r" / "report.md").is_file()
    # What ran is read from the live process.
    ran = record.ran["target + draft"]
    assert ran.build.startswith("xllamacpp ")
    assert any("xllamacpp" in library.path for library in ran.libraries)
    assert "--spec-draft-n-max" in ran.arguments


@pytest.mark.slow
def test_a_flow_measures_and_publishes_the_report(command):
    code, out, err = command.run(
        "acceptance", *small(wrong=True), "--budget", "16", "--route", "token-exact", "--publish", "--json"
    )
    assert code == 0, err
    record = load(out.encode())
    assert isinstance(record, Accepted)
    assert record.regime.route == "token-exact"
    folder = command.store / "reports" / "measure" / record.run
    assert load((folder / "report.json").read_bytes()) == record
    named = {
        line.split("](")[1].rstrip(")") for line in (folder / "report.md").read_text().splitlines() if "![" in line
    }
    assert named
    assert named <= {path.name for path in folder.iterdir()}


def test_a_container_is_not_named_in_vain(command):
    code, out, err = command.run("acceptance", *small(), "--runner", "docker")
    assert (code, out) == (2, "")
    assert "--publish" in err


@pytest.mark.docker
@pytest.mark.slow
def test_a_container_measures_the_same(command):
    engine()
    code, out, err = command.run("acceptance", *small(), "--budget", "16", "--publish", "--json", "--runner", "docker")
    assert code == 0, err
    contained = load(out.encode())
    code, out, err = command.run("acceptance", *small(), "--budget", "16", "--json")
    assert code == 0, err
    here = load(out.encode())
    assert isinstance(contained, Accepted)
    assert isinstance(here, Accepted)
    assert contained.acceptance is not None
    assert here.acceptance is not None
    assert contained.acceptance.answers == here.acceptance.answers
    assert (contained.target.sha256, contained.draft.sha256) == (here.target.sha256, here.draft.sha256)


def servers_of(command: Command) -> list[int]:
    """Servers that carry this device lock folder."""
    return with_variables(str(command.locks), "DRAFTMILL_PROGRAM=")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_server_outlives_a_measurement_that_is_ended(command, number):
    process = command.start("speed", *small(), "--budget", "256", "--pairs", "500")
    until(lambda: len(servers_of(command)) == 2, "both servers run", within_s=300)
    process.send_signal(number)
    until(lambda: not servers_of(command), "they end with the measurement")
    process.communicate(timeout=GUARD_S)
    # The device is free again: the next measurement is not turned away.
    code, _, err = command.run("acceptance", *small(), "--budget", "8")
    assert code == 0, err


def test_a_device_that_is_held_is_said(command):
    process = command.start("speed", *small(), "--budget", "256", "--pairs", "500")
    until(lambda: servers_of(command), "a server runs", within_s=300)
    code, _, err = command.run("acceptance", *small(), "--budget", "8")
    assert code == 1
    assert "device.held" in err
    assert str(process.pid) in err


def test_a_failure_is_json_where_that_is_asked_for(command, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    code, out, _ = command.run("speed", "--target", str(broken), "--draft", str(pairs.small().draft), "--json")
    assert code == 1
    assert json.loads(out)["outcome"] == "refused"


def test_a_wrong_engine_path_is_usage(command):
    code, _, err = command.run("speed", *small(), "--engine", "no/such/server")
    assert code == 2
    assert "no/such/server" in err


def test_gates_that_draft_nothing_are_usage(command):
    code, _, err = command.run("speed", *small(), "--n-min", "9")
    assert code == 2
    assert "--n-min" in err


def test_a_result_is_told_even_where_its_report_cannot_be_written(command, tmp_path):
    (tmp_path / "r" / "report.json").mkdir(parents=True)
    code, out, err = command.run("acceptance", *small(), "--budget", "8", "--report", str(tmp_path / "r"))
    assert code == 1
    assert "tokens/round" in out
    assert str(tmp_path / "r") in err


def test_tokens_per_second_of_two_runs_do_not_compare(command, tmp_path):
    command.run("acceptance", *small(), "--budget", "8", "--report", str(tmp_path / "r"))
    report = str(tmp_path / "r" / "report.json")
    code, _, err = command.run("compare", report, report, "--by", "tok/s")
    assert code == 1
    assert "measurement.tokens_per_second" in err
