"""Kills the parent of a server in each way: `python -m tests.support.killed_parent SIGNAL ...`, here or in a container.

Prints a JSON object {signal: seconds until the server and its port were gone, null if they were not after five}. With
--unbound the server is started as anybody would start it, and its pid is printed instead.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

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
        time.sleep(60)
"""


def is_there(pid: int, port: int) -> bool:
    """Whether the process runs (a zombie does not) or its port is open."""
    try:
        is_running = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        is_running = False
    with socket.socket() as probe:
        return is_running or probe.connect_ex(("127.0.0.1", port)) == 0


def kill_parent(number: signal.Signals, *options: str, within_s: float = 5) -> tuple[int, float | None]:
    """(pid of the server, seconds until it and its port were gone or None)."""
    command = [sys.executable, "-c", textwrap.dedent(PARENT), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout
        pid, port = map(int, parent.stdout.readline().split())
        assert is_there(pid, port)
        parent.send_signal(number)
        started = time.monotonic()
        while is_there(pid, port):
            if time.monotonic() - started > within_s:
                return pid, None
            time.sleep(0.02)
        return pid, time.monotonic() - started


def main() -> None:
    # Whatever a shell in the background made of it: the parent shall have the default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    print(json.dumps({name: kill_parent(signal.Signals[name])[1] for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
