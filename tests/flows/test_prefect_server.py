"""The private Prefect server: quiet, without credentials, and gone with its command."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

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

FLOW = """
import json, os, sys
from pathlib import Path
from flows.prefect_server import prefect_server
def names():
    return [os.environ.get("no_proxy"), os.environ.get("NO_PROXY")]
with prefect_server(Path(sys.argv[1])):
    import prefect
    @prefect.task
    def double(number):
        return 2 * number
    @prefect.flow
    def answer():
        return double.submit(21).result()
    told = {"answer": answer(), "inside": names()}
print(json.dumps(told | {"after": names()}))
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


@pytest.mark.parametrize(
    ("given", "inside", "after"),
    [
        ({}, ["127.0.0.1,localhost", "127.0.0.1,localhost"], [None, None]),
        (
            {"NO_PROXY": "hub.example"},
            ["hub.example,127.0.0.1,localhost", "hub.example,127.0.0.1,localhost"],
            [None, "hub.example"],
        ),
        (
            {"NO_PROXY": "hub.example", "no_proxy": ""},
            ["127.0.0.1,localhost", "hub.example,127.0.0.1,localhost"],
            ["", "hub.example"],
        ),
        ({"no_proxy": "*"}, ["*", None], ["*", None]),
    ],
)
def test_a_flow_runs_where_a_proxy_is_set_that_does_not_know_this_host(
    tmp_path: Path, given: dict[str, str], inside: list[str | None], after: list[str | None]
) -> None:
    # Nothing listens at port 9, so that whoever asks the proxy is told so.
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    dropped = {"PREFECT_API_URL", "no_proxy", "NO_PROXY"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped} | proxies | given
    command = [sys.executable, "-c", FLOW, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {"answer": 42, "inside": inside, "after": after}
