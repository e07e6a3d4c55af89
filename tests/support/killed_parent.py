"""Kills the parent of a server in each way: `python -m tests.support.killed_parent SIGNAL ...`, here or in a container.

Prints a JSON object {signal: whether the server and its port went with it}. With --unbound the server is started as
anybody would start it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.processes import runs
from tests.support.waiting import GUARD_S, until

PARENT = """
    import os, sys, time
    import draftmill.measurement.servers.server as module
    from tests.support.mock_server import Misbehaviour, mock_provider, mock_settings
    if "--unbound" in sys.argv:
        variables = lambda extra: [f"{name}={value}" for name, value in extra.items()]
        module.launched = lambda command, extra: ["env", *variables(extra), *command]
    provider = mock_provider(Misbehaviour(refuses_to_die=True))
    with module.Server(provider, mock_settings(), run="killed parent") as server:
        print(server.pid, server.port, flush=True)
        time.sleep(600)
"""


def is_there(pid: int, port: int) -> bool:
    """Whether the process runs or its port is open."""
    with socket.socket() as probe:
        return runs(pid) or probe.connect_ex(("127.0.0.1", port)) == 0


def kill_parent(number: signal.Signals, *options: str, within_s: float = GUARD_S) -> tuple[int, bool]:
    """(pid of the server, whether it and its port went)."""
    command = [sys.executable, "-c", textwrap.dedent(PARENT), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout
        pid, port = map(int, parent.stdout.readline().split())
        assert is_there(pid, port)
        parent.send_signal(number)
        try:
            until(lambda: not is_there(pid, port), "the server ends", within_s)
        except AssertionError:
            return pid, False
        return pid, True


def main() -> None:
    # Whatever a shell in the background made of it: the parent shall have the default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    print(json.dumps({name: kill_parent(signal.Signals[name])[1] for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
