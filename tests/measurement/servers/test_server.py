"""A server is there inside its block and nowhere else, whatever ends its parent and whatever it does itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from draftmill.measurement.servers.did_speculate import did_speculate
from draftmill.measurement.servers.flags import asked
from draftmill.measurement.servers.leftovers import OWNER, PROGRAM, RUN, Leftover, labels, reap
from draftmill.measurement.servers.live_process import is_loopback, start_time
from draftmill.measurement.servers.providers import llama_server
from draftmill.measurement.servers.server import Server, ServerError
from draftmill.outcome import BadConfiguration, MillError
from flows.images import JOBS
from tests.support import mock_server
from tests.support.engine import engine
from tests.support.killed_parent import kill_parent
from tests.support.mock_server import Misbehaviour, expected_tokens, mock_provider, mock_settings
from tests.support.processes import of_group, with_variables
from tests.support.waiting import GUARD_S, until

ROOT = Path(__file__).resolve().parents[3]


def mock(misbehaviour: Misbehaviour = Misbehaviour(), *, draft: bool = True, **options: float) -> Server:
    return Server(mock_provider(misbehaviour), mock_settings(draft=draft), run="test", **options)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_serves_inside_its_block_and_is_gone_after_it():
    with mock() as server:
        pid, port = server.pid, server.port
        assert server.client.completion("hello", 9, seed=1).tokens == tuple(expected_tokens("hello", 9))
        assert of_group(pid) == [pid]
        assert os.getpgid(pid) == pid != os.getpgid(0)
        assert server.cpu_seconds() > 0
        assert server.memory_bytes()[1] >= server.memory_bytes()[0] > 1 << 20
    assert not of_group(pid)
    assert not is_open(port)


def test_the_first_round_of_requests_waits_for_the_model():
    started = time.monotonic()
    with mock(Misbehaviour(loading_ms=700)) as server:
        assert server.client.health() == "ready"
    assert time.monotonic() - started > 0.7


def test_an_exception_in_the_block_ends_the_server():
    with pytest.raises(ZeroDivisionError), mock() as server:
        pid = server.pid
        _ = 1 / 0
    assert not of_group(pid)


def test_a_server_that_ignores_sigterm_and_has_a_child_is_gone_after_its_block():
    with mock(Misbehaviour(refuses_to_die=True, brings_child=True)) as server:
        pid, port = server.pid, server.port
        assert len(of_group(pid)) == 2
    assert not of_group(pid)
    assert not is_open(port)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_signal_ends_the_parent_ends_the_server(number):
    assert kill_parent(number)[1]


def test_a_server_that_is_not_bound_to_its_parent_stays_and_is_reaped():
    pid, ended = kill_parent(signal.SIGKILL, "--unbound", within_s=1)
    assert not ended
    leftover = next(leftover for leftover in reap() if leftover.pid == pid)
    assert leftover == Leftover(pid, "killed parent", str(Path(sys.executable).resolve()), True)
    assert not of_group(pid)


@pytest.mark.docker
def test_whatever_signal_ends_the_parent_ends_the_server_in_a_container():
    names = ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"]
    client = engine()
    source = {str(ROOT / name): {"bind": f"/source/{name}", "mode": "ro"} for name in ("draftmill", "tests")}
    output = client.containers.run(
        JOBS.public_base,
        ["python3", "-m", "tests.support.killed_parent", *names],
        environment={"PYTHONPATH": "/source", "PYTHONDONTWRITEBYTECODE": "1"},
        working_dir="/source",
        volumes=source,
        user="65532:65532",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="none",
        read_only=True,
        init=True,
        remove=True,
    )
    assert json.loads(output) == dict.fromkeys(names, True)


def test_a_child_whose_parent_died_before_it_could_ask_ends_itself():
    # The parent that it is told of is not the one it has.
    launch = [
        sys.executable,
        "-m",
        "draftmill.measurement.servers.launch",
        "1",
        "{}",
        sys.executable,
        "-c",
        "print('alive')",
    ]
    done = subprocess.run(launch, capture_output=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_crash_is_told_with_its_signal_and_the_log():
    with mock(Misbehaviour(crash_at=1, init_log="a line of the log")) as server:
        server.client.completion("a", 4, seed=1)
        with pytest.raises(ServerError, match=r"SIGSEGV.*a line of the log") as error:
            server.client.completion("a", 4, seed=1)
        assert error.value.code == "server.crashed"
        with pytest.raises(ServerError, match="SIGSEGV"):
            server.check()


@pytest.mark.parametrize("misbehaviour", [Misbehaviour(exit_at_start=True), Misbehaviour(exit_loading=True)])
def test_a_server_that_ends_before_it_is_ready_is_told_with_its_reason(misbehaviour):
    said = replace(misbehaviour, init_log="cannot open the model")
    with pytest.raises(ServerError, match=r"exit code 1.*cannot open the model") as error, mock(said):
        pass
    assert error.value.code == "server.start"


def test_a_server_asked_after_its_block_says_that_it_was_left():
    with mock() as server:
        pass
    with pytest.raises(ServerError, match="its block was left"):
        server.client.slots()
    with pytest.raises(ServerError, match="its block was left"):
        server.cpu_seconds()


@pytest.mark.parametrize("misbehaviour", [Misbehaviour(never_ready=True), Misbehaviour(never_listens=True)])
def test_a_server_that_never_gets_ready_meets_its_start_deadline(misbehaviour):
    server = mock(misbehaviour, start_deadline_s=1)
    with pytest.raises(ServerError, match="not ready after 1 s") as error, server:
        pass
    assert error.value.code == "server.start_deadline"
    # On a busy machine the one that would listen may not have come to it either.
    assert ("exec" in str(error.value)) == (not server.port)
    assert not (misbehaviour.never_listens and server.port)


def test_a_request_that_never_ends_meets_the_run_deadline():
    server = mock(Misbehaviour(hang_at=0), run_deadline_s=2)
    # Its start counts, and may take as long on a busy machine.
    with pytest.raises(ServerError, match="still wanted after 2 s") as error, server:
        server.client.completion("a", 4, seed=1)
    assert error.value.code == "server.run_deadline"
    assert not of_group(server.pid)


def test_a_request_has_a_timeout_of_its_own():
    with mock(Misbehaviour(hang_at=0)) as server:
        with pytest.raises(MillError, match="/completion") as error:
            server.client.completion("a", 4, seed=1, timeout_s=0.3)
        assert error.value.code == "client.unreachable"


def test_an_endless_log_is_kept_in_bounds_and_ends_the_server():
    with mock(Misbehaviour(endless_log=True), log_limit=8 << 20, run_deadline_s=GUARD_S) as server:
        with pytest.raises(ServerError, match="more than 8388608 bytes") as error:
            while True:
                server.client.completion("a", 4, seed=1)
        assert error.value.code == "server.log_flood"
        until(lambda: not of_group(server.pid), "it ends")
        assert len(server.log) < 2 << 20
        assert "bytes left out" in server.log


def test_a_server_that_listens_beyond_this_machine_is_ended():
    with pytest.raises(ServerError, match="beyond this machine") as error, mock(Misbehaviour(everywhere=True)):
        pass
    assert error.value.code == "server.not_loopback"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("0100007F", True),  # 127.0.0.1
        ("00000000", False),  # 0.0.0.0
        ("0101A8C0", False),  # 192.168.1.1
        ("7F00A8C0", False),  # 192.168.0.127: the last byte decides nothing
        ("00000000000000000000000001000000", True),  # ::1
        ("00000000000000000000000000000000", False),  # ::
    ],
)
def test_loopback_addresses_are_known_in_the_kernels_form(address, expected):
    assert is_loopback(address) is expected


def test_stale_variables_of_the_shell_do_not_reach_the_server(monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_DRAFT_MAX", "16")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    with mock() as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert b"LLAMA_ARG" not in environment
    assert b"canary" not in environment
    assert b"SOMETHING_ELSE=kept" in environment


@pytest.mark.parametrize(
    ("misbehaviour", "cause"),
    [
        (Misbehaviour(), None),
        (Misbehaviour(speculation_off=True), "no_spec_type"),
        (Misbehaviour(speculation_off=True, init_log=mock_server.VOCABULARIES), "vocabularies"),
        (Misbehaviour(speculation_off=True, init_log=mock_server.NO_ROLL_BACK), "context_cannot_roll_back"),
        (Misbehaviour(speculation_off=True, init_log=mock_server.INIT_ERROR), "init_error"),
        (Misbehaviour(init_log=mock_server.INIT_ERROR), "init_error"),
        (Misbehaviour(missing_counters=True), "nothing_drafted"),
    ],
)
def test_a_server_that_does_not_speculate_is_told_with_the_cause(misbehaviour, cause):
    with mock(misbehaviour) as server:
        before = server.client.slots()
        told = did_speculate(before, server.client.completion("a", 16, seed=1), server.log)
    assert (told.happened, told.cause) == (cause is None, cause)


def start_labelled(variables: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=os.environ | variables)


def label(owner: str, program: str | None = None) -> dict[str, str]:
    return {RUN: "earlier", OWNER: owner, PROGRAM: program or str(Path(sys.executable).resolve())}


def test_leftovers_are_ended_only_when_their_owner_is_dead_and_they_run_what_the_label_says():
    own = labels("mine", Path(sys.executable).resolve())
    namespace = own[OWNER].split(":")[2]
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    dead_owner = f"{dead.pid}:1:{namespace}"
    reused = f"{os.getpid()}:1:{namespace}"
    servers = {
        "dead owner": start_labelled(label(dead_owner)),
        "number of the owner is another's now": start_labelled(label(reused)),
        "living owner": start_labelled(own),
        "owner in another namespace": start_labelled(label(f"{dead.pid}:1:4")),
        "other program": start_labelled(label(dead_owner, "/bin/ls")),
        "owner unreadable": start_labelled(label("who")),
    }
    try:
        until(
            lambda: all(b"import time" in read_arguments(server.pid) for server in servers.values()), "all have begun"
        )
        expected = {servers[name].pid for name in ("dead owner", "number of the owner is another's now")}
        program = str(Path(sys.executable).resolve())
        found = [leftover for leftover in reap() if leftover.run == "earlier"]
        assert {leftover.pid for leftover in found} == expected
        assert Leftover(servers["dead owner"].pid, "earlier", program, True) in found
        alive = {name for name, server in servers.items() if server.poll() is None}
        assert alive == {"living owner", "owner in another namespace", "other program", "owner unreadable"}
    finally:
        for server in servers.values():
            server.kill()
            server.wait()


def read_arguments(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_running_server_carries_its_labels_and_is_no_leftover():
    with mock() as server:
        variables = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        assert f"{RUN}=test".encode() in variables
        assert any(
            entry.startswith(f"{OWNER}={os.getpid()}:{start_time(os.getpid())}:".encode()) for entry in variables
        )
        assert server.pid not in {leftover.pid for leftover in reap()}
        server.check()


def test_an_interrupt_while_the_server_ends_still_ends_it(monkeypatch):
    server = mock(Misbehaviour(refuses_to_die=True))
    with pytest.raises(KeyboardInterrupt), server:
        pid = server.pid
        monkeypatch.setattr(server, "_wait", interrupted_once(server._wait))
    assert not of_group(pid)


def interrupted_once(wait):
    """`wait`, interrupted the first time, as by a second Ctrl-C."""
    calls = []

    def call(seconds: float) -> bool:
        calls.append(seconds)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return wait(seconds)

    return call


@pytest.mark.parametrize(
    ("misbehaviour", "expected"),
    [
        (Misbehaviour(), lambda usual: usual),
        (Misbehaviour(different_at=3), lambda usual: [*usual[:3], usual[3] + 1, *usual[4:]]),
        (Misbehaviour(echo_loop=True), lambda usual: [7] * len(usual)),
    ],
)
def test_the_mock_says_what_it_is_asked_to(misbehaviour, expected):
    with mock(misbehaviour) as server:
        tokens = server.client.completion("a", 8, seed=1).tokens
    assert list(tokens) == expected(expected_tokens("a", 8))


def test_the_mock_takes_the_time_it_is_asked_to():
    # 8 tokens alone: 7 decodes of 4 ms; the first request 3 times, then 10 % more each.
    with mock(Misbehaviour(token_ms=4, first=3, drift=0.1), draft=False) as server:
        samples = [server.client.completion("a", 8, seed=1) for _ in range(3)]
    assert [round(sample.timings.predicted_ms, 3) for sample in samples] == [84.0, 30.8, 33.6]
    assert all(sample.wall_s * 1000 >= sample.timings.predicted_ms for sample in samples)


def test_a_script_is_turned_away_since_what_it_starts_may_stay(tmp_path):
    script = tmp_path / "llama-server"
    script.write_text(f"#!/bin/sh\n{sys.executable} -c 'import time; time.sleep(600)'\n")
    script.chmod(0o755)
    with pytest.raises(BadConfiguration) as error, Server(llama_server(script), mock_settings(), run="test"):
        pass
    assert error.value.code == "providers.script"
    assert str(script) in str(error.value)


def test_a_question_that_is_not_answered_leaves_nothing_behind(tmp_path):
    mark = f"left-{os.getpid()}-{time.monotonic_ns()}"
    program = f"import subprocess, time; subprocess.Popen(['sleep', '300'], env={{'MARK': '{mark}'}}); time.sleep(300)"
    with pytest.raises(subprocess.TimeoutExpired):
        asked([sys.executable, "-c", program], {}, 2)
    until(lambda: not with_variables(mark), "what it started ends")
