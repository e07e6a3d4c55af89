"""The servers that the tests start: they run beside each other and leave nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.s3_servers import Server
from tests.support.waiting import until

STARTER = """
import os, sys, signal
from pathlib import Path
from tests.support.s3_servers import weed
with weed(Path(sys.argv[1])) as server:
    print(server.port, flush=True)
    signal.pause()
"""


def listening(port: int) -> bool:
    line = f"0100007F:{port:04X} 00000000:0000 0A"
    return line in Path("/proc/net/tcp").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal")
def test_a_server_dies_with_a_killed_test_run_and_leaves_its_neighbour_alone(weed: Server, tmp_path: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    port = int(starter.stdout.readline())
    assert listening(port)
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    until(lambda: not listening(port), "the server ends with its starter")
    assert listening(weed.port)
