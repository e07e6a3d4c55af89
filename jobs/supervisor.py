"""Runs one job as a child and ends with it, with its runner, or at its deadline.

    python -m jobs.supervisor [--secrets] JOB FOLDER SECONDS

Standard input is a pipe (or an engine's attached stream) that the runner holds and never closes while it waits. End of
file there means that the runner is gone, however it died, so the job's whole process group is killed at once; no timer
and no server is needed. With --secrets the first line of standard input is a JSON object {name: text}, written to
/run/secrets/<name> before the job starts.

Exit code: the job's own; 128 + n for signal n; 124 past the deadline.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

TIMED_OUT = 124
SECRETS = Path("/run/secrets")


def _end_with_runner(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _kill(child)
    os._exit(128 + signal.SIGKILL)


def _kill(child: subprocess.Popen[bytes], signum: int = signal.SIGKILL) -> None:
    """To the whole group: the child leads it until we have waited for it, so the number cannot be another's."""
    if child.returncode is None:
        try:
            os.killpg(child.pid, signum)
        except ProcessLookupError:
            return


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


def supervise(command: list[str], timeout_s: float) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def forward(signum: int, _: FrameType | None) -> None:
        _kill(child, signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, forward)
    threading.Thread(target=_end_with_runner, args=(child,), daemon=True).start()
    try:
        code = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        _kill(child)
        child.wait()
        return TIMED_OUT
    return code if code >= 0 else 128 - code


def main() -> None:
    arguments = sys.argv[1:]
    with_secrets = arguments[:1] == ["--secrets"]
    if len(arguments) - with_secrets != 3:
        raise SystemExit("usage: python -m jobs.supervisor [--secrets] JOB JOB_FOLDER SECONDS")
    job, folder, seconds = arguments[with_secrets:]
    if with_secrets:
        write_secrets(_read_line(), SECRETS)
    sys.exit(supervise([sys.executable, "-m", f"jobs.{job}", folder], float(seconds)))


if __name__ == "__main__":
    main()
