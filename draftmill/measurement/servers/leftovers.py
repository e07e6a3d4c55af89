"""Servers that outlived their owner: labelled by environment variables, found in /proc, ended once it is sure.

The labels: DRAFTMILL_RUN, whose server it is; DRAFTMILL_OWNER, the process that started it as pid:start time:pid
namespace; DRAFTMILL_PROGRAM, the file it runs.
"""

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

from draftmill.measurement.servers.live_process import environment, mapped_code, start_time

RUN, OWNER, PROGRAM = "DRAFTMILL_RUN", "DRAFTMILL_OWNER", "DRAFTMILL_PROGRAM"
_GRACE_S = 2.0


@dataclass(frozen=True)
class Leftover:
    """A labelled process without an owner. `ended` is False where it could not be ended."""

    pid: int
    run: str
    program: str
    ended: bool


def labels(run: str, program: Path) -> dict[str, str]:
    """The variables that mark a server of this process."""
    owner = f"{os.getpid()}:{start_time(os.getpid())}:{_namespace('self')}"
    return {RUN: run, OWNER: owner, PROGRAM: str(program)}


def reap() -> list[Leftover]:
    """Ends every labelled server whose owner is dead and that runs the program it is labelled with.

    A process of another user or of another pid namespace (a container) is left alone: whether its owner lives cannot
    be told from here.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (leftover := _reap(int(name))):
            found.append(leftover)
    return found


def _reap(pid: int) -> Leftover | None:
    variables = environment(pid)
    if not (RUN in variables and OWNER in variables and PROGRAM in variables) or pid == os.getpid():
        return None
    try:
        # The handle is taken before the checks, so that what is checked is what is ended.
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        program = variables[PROGRAM]
        runs_it = any(os.path.realpath(mapped.path) == program for mapped in mapped_code(pid, digests=False))
        if environment(pid) != variables or _owner_may_live(variables[OWNER]) or not runs_it:
            return None
        return Leftover(pid, variables[RUN], program, _end(handle))
    finally:
        os.close(handle)


def _owner_may_live(owner: str) -> bool:
    try:
        pid, started, namespace = (int(part) for part in owner.split(":"))
    except ValueError:
        return True
    return namespace != _namespace("self") or start_time(pid) == started


def _end(handle: int) -> bool:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            try:
                signal.pidfd_send_signal(handle, number)
            except PermissionError:
                return False
        # A pidfd is readable once its process has ended.
        if select.select([handle], [], [], _GRACE_S)[0]:
            return True
    return False


def _namespace(pid: str) -> int:
    return os.stat(f"/proc/{pid}/ns/pid").st_ino
