"""What a measurement leaves in the work folder when it breaks."""

import json
import os
import subprocess
import sys
from pathlib import Path

from draftmill.measurement.device.lock import LOCKS
from tests.support.inputs import ROOT

SCRIPT = """
import json, sys
from pathlib import Path
from flows.prefect_server import prefect_server
order = json.loads(sys.argv[1])
with prefect_server(Path(order["work"])):
    from flows.measure_pair import measure_pair
    state = measure_pair(order, return_state=True)
    print(type(state.result(raise_on_failure=False)).__name__)
"""
UNREADABLE = "/proc/self/mem"
"""A plain file that no link can be made to from another file system, and whose first byte nobody can read."""


def test_a_pair_that_cannot_be_staged_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "target.gguf").write_bytes(b"copied before the draft breaks")
    work = tmp_path / "work"
    order = {"request": {"what": "speed"}, "target": str(tmp_path / "target.gguf"), "draft": UNREADABLE}
    order |= {"store": str(tmp_path / "store"), "work": str(work), "runner": "process"}
    environment = {**os.environ, LOCKS: str(tmp_path / "locks")}
    environment.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-c", SCRIPT, json.dumps(order)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "OSError"
    # It came as far as the folder for them.
    assert list((work / "measured").iterdir()) == []
