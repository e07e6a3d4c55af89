"""The same conversion in containers: the same bytes, and nothing left behind by a kill."""

import os
import signal
from pathlib import Path

import docker
import pytest

from tests.e2e.mill import PLAIN, MillMaker, published_files
from tests.support.engine import engine
from tests.support.waiting import until

pytestmark = pytest.mark.docker
ARGUMENTS = ("convert", PLAIN, "--quant", "Q8_0", "--json")


def test_containers_publish_the_bytes_that_processes_publish(mill: MillMaker, tmp_path: Path) -> None:
    engine()
    contents = []
    for runner in ("process", "docker"):
        here = mill(str(tmp_path / runner), DRAFTMILL_RUNNER=runner, HF_TOKEN="hf_canaryInContainers")
        here.work = tmp_path / f"{runner}-work"
        code, _, err = here.run(*ARGUMENTS, timeout=600)
        assert code == 0, err
        contents.append({path: file.read_bytes() for path, file in published_files(tmp_path / runner).items()})
    assert contents[0] == contents[1]


def containers_of(client: docker.DockerClient, pid: int, *, stopped: bool = False) -> list[str]:
    """Jobs of the containers that the command with this process number started; other runs may go on beside it."""
    found = client.containers.list(all=stopped, filters={"label": "draftmill.run"}, ignore_removed=True)
    return [c.labels["draftmill.job"] for c in found if f"/{pid}/" in c.labels["draftmill.owner"]]


def test_a_killed_run_takes_its_container_with_it(mill: MillMaker, tmp_path: Path) -> None:
    client = engine()
    here = mill(DRAFTMILL_RUNNER="docker")
    process = here.start(*ARGUMENTS)

    def converts() -> bool:
        assert process.poll() is None, process.communicate()
        return "convert" in containers_of(client, process.pid)

    until(converts, "the container that converts", within_s=300)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not containers_of(client, process.pid), "the container ends with its run")
    code, ending, err = here.run(*ARGUMENTS, timeout=600)
    assert code == 0, err
    assert ending["kind"] == "published"
    assert containers_of(client, process.pid, stopped=True) == [], "the next run sweeps what a kill left stopped"
