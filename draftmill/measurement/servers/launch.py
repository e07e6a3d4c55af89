"""Becomes the server: `python -m draftmill.measurement.servers.launch PARENT_PID VARIABLES PROGRAM [ARGUMENT ...]`.

Between the fork and the exec the process binds its life to its parent's. It also gives up gaining privileges, since
Linux drops the parent-death signal at the exec of a file that brings some. VARIABLES is a JSON object of what is set
for the program only: a library path that suits it need not suit this Python.
"""

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence

from draftmill.engine.orphan import die_with_parent

_PR_SET_NO_NEW_PRIVS = 38


def launched(command: Sequence[str], extra: Mapping[str, str]) -> list[str]:
    """The command that becomes `command` with the `extra` variables, in a child of this process that dies with it."""
    return [sys.executable, "-m", __name__, str(os.getpid()), json.dumps(dict(extra)), *command]


def main() -> None:
    parent, variables, program = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.execvpe(program[0], program, os.environ | variables)  # noqa: S606 - it is the program that was asked for
    except OSError as error:
        sys.exit(f"{program[0]} cannot be run: {error}")


if __name__ == "__main__":
    main()
