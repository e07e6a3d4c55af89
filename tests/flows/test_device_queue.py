"""The queue for a device, against a real private Prefect server and with holders that are killed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.support.inputs import ROOT
from tests.support.waiting import GUARD_S

pytestmark = pytest.mark.slow

SERVE = """
import os, sys
from pathlib import Path
from flows.prefect_server import PRIVATE, prefect_server
with prefect_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    print(os.environ.get(PRIVATE), flush=True)
    sys.stdin.readline()
"""
QUEUE = """
import json, os, sys
from pathlib import Path
name, folder, wait_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
from draftmill.measurement.device.profiles import CPU
from draftmill.outcome import MillError
from flows.device_queue import device_queue
device = CPU.model_copy(update={"lock": name})
print("asks", flush=True)
told = lambda what, done, total: print("waits", what, flush=True)
try:
    with device_queue(device, run=f"run of {os.getpid()}", wait_s=wait_s, folder=folder, progress=told):
        print("in", flush=True)
        sys.stdin.readline()
    print("out", flush=True)
except MillError as error:
    print("refused", error.code, error, flush=True)
"""


@pytest.fixture(autouse=True)
def _no_server_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole runs keep a private server in this process's variables for as long as they go on."""
    monkeypatch.delenv("DRAFTMILL_PREFECT_PRIVATE", raising=False)


class Queue:
    """One device's queue: a Prefect server's address, the name of the lock, the folder of locks."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.limit = f"draftmill-bench-{name}"
        self.environment = {**os.environ, "PREFECT_API_URL": url, "DRAFTMILL_HOST": "bench", "DO_NOT_TRACK": "1"}
        self.environment |= {"PREFECT_HOME": str(folder), "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}

    @contextmanager
    def run(self, *, wait_s: float = GUARD_S, private: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A process that asks for the slot and holds it until it is sent a line."""
        environment = self.environment | ({"DRAFTMILL_PREFECT_PRIVATE": "1"} if private else {})
        process = subprocess.Popen(
            [sys.executable, "-c", QUEUE, self.name, str(self.folder), str(wait_s)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert said(process) == "asks"
            yield process
        finally:
            process.kill()
            process.communicate()

    def look(self) -> dict[str, Any]:
        """The limit as the server has it."""
        answer = self.ask("GET", self.limit)
        return {"id": answer["id"], "limit": answer["limit"], "active": answer["active_slots"]}

    def create(self, limit: int) -> None:
        self.ask("POST", "", name=self.limit, limit=limit)

    def take(self) -> None:
        """By hand, with a lease that nobody renews."""
        self.ask("POST", "increment-with-lease", names=[self.limit], slots=1, mode="concurrency", lease_duration=60)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Straight to the server's API."""
        request = Request(
            f"{self.environment['PREFECT_API_URL']}/v2/concurrency_limits/{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urlopen(request, timeout=GUARD_S) as answer:
            return json.loads(answer.read() or "null")


def said(process: subprocess.Popen[str]) -> str:
    """Its next line that does not say that it waits."""
    assert process.stdout
    while (line := process.stdout.readline().strip()).startswith("waits"):
        pass
    return line


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def server(state: Path, named: str | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command's Prefect server, its own or the `named` one, and its address."""
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment |= {"PREFECT_API_URL": named} if named else {}
    command = [sys.executable, "-c", SERVE, str(state)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, said(process)
    finally:
        if process.poll() is None:
            process.communicate("\n", timeout=GUARD_S)


Leases = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture(scope="module")
def url(state: Path) -> Iterator[str]:
    with server(state) as (_, address):
        yield address


@pytest.fixture
def leases(state: Path) -> Leases:
    """The ids of the leases of a limit, from the server's own storage."""

    def of(limit: str) -> list[str]:
        files = (json.loads(path.read_text()) for path in (state / "prefect/concurrency_leases").glob("*-*.json"))
        return [lease["id"] for lease in files if limit in lease["resource_ids"]]

    return of


@pytest.fixture
def queue(url: str, tmp_path: Path) -> Queue:
    return Queue(url, f"d{token_hex(4)}", tmp_path)


def test_the_limit_is_made_with_one_slot_and_the_next_run_gets_it_when_it_is_let_go(queue: Queue) -> None:
    with queue.run() as first:
        assert said(first) == "in"
        assert queue.look() | {"id": ""} == {"id": "", "limit": 1, "active": 1}
        with queue.run() as second:
            assert second.stdout
            assert f"the queue for cpu, held by run run of {first.pid}" in second.stdout.readline()
            let_go(first)
            assert said(first) == "out"
            assert said(second) == "in"
            assert queue.look()["active"] == 1
            let_go(second)
            assert said(second) == "out"
    assert queue.look()["active"] == 0


def test_the_next_run_is_in_before_the_lease_of_a_killed_holder_ends_and_the_old_lease_frees_nothing_later(
    queue: Queue, leases: Leases
) -> None:
    with queue.run() as first:
        assert said(first) == "in"
        before = queue.look()
        [lease] = leases(before["id"])
        with queue.run() as second:
            assert second.stdout and second.stdout.readline().startswith("waits")
            first.kill()
            assert said(second) == "in"
            # Prefect alone would have ended the lease before it let anybody in.
            assert lease in leases(before["id"])
            queue.ask("POST", "decrement-with-lease", lease_id=lease)
            assert queue.look()["active"] == 1
            assert queue.look()["id"] != before["id"]


def test_a_waiting_run_gives_up_at_its_deadline(queue: Queue) -> None:
    with queue.run() as first:
        assert said(first) == "in"
        with queue.run(wait_s=1) as second:
            assert said(second).startswith("refused device.held")


def test_a_slot_that_somebody_takes_by_hand_is_respected_and_the_way_to_free_it_told(queue: Queue) -> None:
    queue.create(1)
    queue.take()
    with queue.run(wait_s=2) as run:
        line = said(run)
    assert line.startswith("refused device.queue ")
    assert f"prefect gcl update {queue.limit} --active-slots 0" in line
    queue.ask("PATCH", queue.limit, active_slots=0)
    with queue.run() as run:
        assert said(run) == "in"


def test_a_command_knows_whether_the_server_is_its_own(url: str, tmp_path: Path) -> None:
    with server(tmp_path / "own") as (own, address):
        assert (address == url, said(own)) == (False, "1")
    with server(tmp_path / "client", named=url) as (named, address):
        assert (address == url, said(named)) == (True, "None")


def test_a_taken_slot_is_no_error_on_the_terminal(queue: Queue, capfd: pytest.CaptureFixture[str]) -> None:
    queue.create(1)
    queue.take()
    with queue.run(wait_s=1) as run:
        assert said(run).startswith("refused device.queue ")
        run.communicate(timeout=GUARD_S)
    assert "ConcurrencySlot" not in capfd.readouterr().err


def test_on_a_server_of_our_own_a_taken_slot_is_one_left_behind(queue: Queue) -> None:
    queue.create(1)
    queue.take()
    with queue.run(private=True) as run:
        assert said(run) == "in"


def test_a_limit_that_is_set_to_none_gives_no_slot_and_the_servers_reason(queue: Queue) -> None:
    queue.create(0)
    with queue.run(wait_s=2) as run:
        line = said(run)
    assert line.startswith("refused device.queue_server")
    assert "greater than the limit" in line


def test_work_that_is_done_is_not_lost_with_the_server(tmp_path: Path) -> None:
    with server(tmp_path / "state") as (process, url), Queue(url, "lost", tmp_path).run() as run:
        assert said(run) == "in"
        process.communicate("\n", timeout=GUARD_S)
        let_go(run)
        assert said(run) == "out"
