"""The kernel lock, with holders that are killed, fork and belong to other users."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory

import pytest

from draftmill import kernel_lock as module
from draftmill.kernel_lock import held_by, hold, is_free
from draftmill.outcome import BadConfiguration, Temporary
from tests.support.processes import of_group
from tests.support.waiting import GUARD_S, until

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from draftmill.kernel_lock import hold
if "--user" in sys.argv:
    os.umask(0o077)
    os.setgroups([])
    os.setuid(int(sys.argv[-1]))
with hold(Path(sys.argv[1]), "the device", run="first", wait_s=float(sys.argv[2])):
    if "--children" in sys.argv:
        import multiprocessing
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
        subprocess.Popen(["sleep", "600"], close_fds=False)
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "gpu.lock"


@contextmanager
def another(path: Path, *options: str, wait_s: float = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(wait_s), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream
            stream.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    assert said(process) == "let go"


def test_one_holder_at_a_time_and_the_next_when_it_ends(path: Path) -> None:
    with another(path) as first:
        assert said(first) == "held"
        with pytest.raises(Temporary) as caught, hold(path, "the device", run="third"):
            pass
        assert caught.value.code == "lock.held"
        with another(path, wait_s=GUARD_S) as second:
            time.sleep(0.3)
            assert not is_free(path)
            let_go(first)
            assert said(second) == "held"


def test_a_refused_caller_is_told_who_holds_it_and_since_when(path: Path) -> None:
    with another(path) as first:
        said(first)
        record = json.loads(path.read_text())
        assert (record["pid"], record["run"]) == (first.pid, "first")
        assert held_by(path) == f"run first (process {first.pid} on {gethostname()}, since {record['since']})"
        with pytest.raises(Temporary, match=f"run first .process {first.pid}"), hold(path, "the device", run="x"):
            pass


def test_waiting_ends_at_its_deadline(path: Path) -> None:
    with another(path) as first:
        said(first)
        started = time.monotonic()
        with pytest.raises(Temporary), hold(path, "the device", run="x", wait_s=1):
            pass
        assert time.monotonic() - started >= 1


def test_waiting_tells_again_and_again_who_is_waited_for(path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with another(path) as first:
        said(first)

        def tell(what: str, done: int, total: int) -> None:
            told.append((what, done, total))
            if len(told) == 4:
                let_go(first)

        with hold(path, "the device", run="x", wait_s=GUARD_S, progress=tell):
            pass
    assert len(told) >= 4
    assert all("run first" in what and total == GUARD_S for what, _, total in told[:4])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("options", [(), ("--children",)])
def test_it_is_free_after_its_holders_death_also_when_its_children_live_on(
    path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    with another(path, *options) as first:
        assert said(first) == "held"
        assert not is_free(path)
        first.send_signal(number)
        until(lambda: is_free(path), "it is free")
        if options:
            assert len(of_group(first.pid)) >= 2, "the children are gone too: nothing was shown"


def test_a_child_that_was_forked_inside_leaves_the_block_without_letting_go(path: Path) -> None:
    def leave() -> None:
        with pytest.raises(Temporary), hold(path, "the device", run="child"):
            pass

    with hold(path, "the device", run="parent"):
        child = multiprocessing.get_context("fork").Process(target=leave)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert held_by(path).startswith("run parent")


def test_the_record_is_gone_when_it_was_let_go_and_stays_when_the_holder_was_killed(path: Path) -> None:
    with hold(path, "the device", run="orderly") as before:
        assert before == ""
    assert path.read_text() == ""
    with another(path) as first:
        said(first)
        first.kill()
        first.wait()
        assert held_by(path) == ""
        with hold(path, "the device", run="next") as before:
            assert before.startswith("run first")


def test_an_exception_inside_lets_go(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), hold(path, "the device", run="x"):
        raise KeyboardInterrupt
    assert is_free(path)


def test_a_lock_whose_file_was_cleared_away_is_taken_on_the_new_file(path: Path, monkeypatch) -> None:
    opened = []

    def open_and_lose(at: Path) -> int:
        descriptor = real(at)
        if not opened:
            at.unlink()
        opened.append(descriptor)
        return descriptor

    real = module._open
    monkeypatch.setattr(module, "_open", open_and_lose)
    with hold(path, "the device", run="x"):
        assert len(opened) == 2
        assert not is_free(path)


def test_a_link_in_the_folder_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("kept")
    path.symlink_to(victim)
    with pytest.raises(BadConfiguration, match="cannot be opened"), hold(path, "the device", run="x"):
        pass
    assert victim.read_text() == "kept"


def test_a_pipe_in_its_place_is_refused(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(BadConfiguration, match="no regular file"), hold(path, "the device", run="x"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize(("one", "two"), [("0", "65534"), ("65534", "0")])
def test_two_users_keep_each_other_out_whatever_their_umask(one: str, two: str) -> None:
    with TemporaryDirectory() as shared:  # pytest's own folders are closed to other users
        os.chmod(shared, 0o1777)
        path = Path(shared, "locks", "gpu.lock")
        with another(path, "--user", one) as first:
            assert said(first) == "held"
            assert path.stat().st_uid == int(one)
            with another(path, "--user", two) as second:
                assert said(second) == ""
                assert second.stderr and "run first" in second.stderr.read()
        with another(path, "--user", two) as second:
            assert said(second) == "held"
