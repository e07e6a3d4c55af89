"""Runs one job as a child and ends with it, with its runner, or at its deadline.

    python -m jobs.supervisor [--secrets] [--relay ADDRESS:PORT] JOB FOLDER SECONDS

Standard input is a pipe (or an engine's attached stream) that the runner holds and never closes while it waits. End of
file there means that the runner is gone, however it died, so the job's whole process group is killed at once; no timer
and no server is needed. With --secrets the first line of standard input is a JSON object {name: text}, written to
/run/secrets/<name> before the job starts. With --relay the job reaches ADDRESS:PORT of the host through the socket
/run/relay/socket, and nothing else.

Exit code: the job's own; 128 + n for signal n; 124 past the deadline.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType

TIMED_OUT = 124
SECRETS = Path("/run/secrets")
RELAY = "/run/relay/socket"
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _end_with_runner(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _kill(child)
    os._exit(128 + signal.SIGKILL)


def _kill(child: subprocess.Popen[bytes], signum: int = signal.SIGKILL) -> None:
    """The whole group, which the child leads until it is reaped; after that the number may be another's."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signum)


def _read_line() -> bytes:
    """One byte at a time: what follows the line is the watcher's."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("the runner closed the pipe before it handed over the secrets")
        line += byte
    return line


def write_secrets(line: bytes, folder: Path) -> None:
    for name, text in json.loads(line).items():
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)


def _die_with(parent: int) -> None:
    """In the new child: Linux ends it when the supervisor itself is killed."""
    if LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def supervise(command: list[str], timeout_s: float) -> int:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(_die_with, os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
    )
    timed_out = False

    def expire(_: int, __: FrameType | None) -> None:
        nonlocal timed_out
        timed_out = True
        _kill(child)

    def forward(signum: int, _: FrameType | None) -> None:
        _kill(child, signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, forward)
    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    threading.Thread(target=_end_with_runner, args=(child,), daemon=True).start()
    # Not reaped yet, so that the group's number is still its own when what the job left behind is killed.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    _kill(child)
    code = child.wait()
    if timed_out:
        return TIMED_OUT
    return code if code >= 0 else 128 - code


def listen(place: str) -> None:
    from jobs.relay import dial_unix, serve

    address, _, port = place.rpartition(":")
    listener = socket.create_server((address, int(port)))
    threading.Thread(target=serve, args=(listener, lambda: dial_unix(RELAY)), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobs.supervisor", description=__doc__)
    parser.add_argument("--secrets", action="store_true")
    parser.add_argument("--relay", metavar="ADDRESS:PORT")
    parser.add_argument("job")
    parser.add_argument("folder")
    parser.add_argument("seconds", type=float)
    asked = parser.parse_args()
    if asked.secrets:
        write_secrets(_read_line(), SECRETS)
    if asked.relay:
        listen(asked.relay)
    sys.exit(supervise([sys.executable, "-m", f"jobs.{asked.job}", asked.folder], asked.seconds))


if __name__ == "__main__":
    main()
