"""The private Prefect server: quiet, without credentials, and gone with its command."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.support.inputs import ROOT
from tests.support.processes import with_arguments
from tests.support.waiting import GUARD_S, until

SCRIPT = """
import sys, time
from pathlib import Path
from flows.prefect_server import prefect_server
with prefect_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.readline()
"""


def start(state: Path) -> tuple[subprocess.Popen[str], str]:
    environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": "canary", "HF_TOKEN": "canary"}
    environment.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-c", SCRIPT, str(state)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def servers(url: str) -> list[int]:
    port = url.removesuffix("/api").rsplit(":", 1)[1]
    return with_arguments("prefect", port)


def test_the_server_sends_nothing_out_holds_no_secret_and_dies_with_a_killed_command(tmp_path: Path) -> None:
    process, url = start(tmp_path)
    with urllib.request.urlopen(f"{url}/health") as answer:
        assert answer.status == 200
    found = servers(url)
    assert found
    environment = Path(f"/proc/{found[0]}/environ").read_bytes().split(b"\0")
    for setting in (
        b"DO_NOT_TRACK=1",
        b"PREFECT_SERVER_ANALYTICS_ENABLED=false",
        b"PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT=false",
    ):
        assert setting in environment
    assert not any(b"canary" in entry for entry in environment)
    process.kill()
    process.wait()
    until(lambda: not servers(url), "the server ends with the command")


def test_a_second_command_gets_a_server_of_its_own_and_both_end_quietly(tmp_path: Path) -> None:
    (one, first), (two, second) = start(tmp_path), start(tmp_path)
    assert first != second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prefect", "prefect-2"]
    for process, url in ((one, first), (two, second)):
        process.communicate("\n", timeout=GUARD_S)
        assert process.returncode == 0
        assert servers(url) == []
