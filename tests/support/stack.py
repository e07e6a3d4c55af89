"""The stack of docker-compose.yml, started for real: ports, folders and secrets of its own, images on local bases."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import compose
import docker
import httpx
from docker.models.containers import Container

from flows.images import JOBS
from flows.runners.docker_engine import LABEL
from tests.support.s3_servers import free_ports
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = Path(compose.__file__).with_name("docker-compose")
"""The real program: the package's own script for it ends with 0 whatever happened."""
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
LOST_AFTER_S = 60
SECRETS = ("postgres_password", "prefect_auth", "store_credentials", "hf_token")


@dataclass
class Stack:
    """folder: holds the secrets, .env and what the worker writes. Ports are on loopback."""

    folder: Path
    client: docker.DockerClient
    prefect_port: int
    s3_port: int
    project: str
    files: tuple[str, ...] = ("docker-compose.yml", ".ci/stack/compose.yml")
    seconds: dict[str, float] = field(default_factory=dict)

    def compose(self, *arguments: str, check: bool = True, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        files = [part for file in self.files for part in ("-f", file)]
        command = [str(COMPOSE), "--env-file", str(self.folder / "env"), *files, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout)
        assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done

    def up(self) -> None:
        """Starts it, or says how each part of it stands and what it last said."""
        try:
            done = self.compose("up", "-d", "--wait", "--wait-timeout", "300", check=False)
        except subprocess.TimeoutExpired as late:
            ended, said = f"not up within {late.timeout:g} s", str(late.stderr)
        else:
            if done.returncode == 0:
                return
            ended, said = f"up ended with {done.returncode}", done.stderr
        states = self.compose("ps", "-a", check=False).stdout + self.compose("logs", "--tail", "60", check=False).stdout
        raise AssertionError(f"{ended}\n{said[-2000:]}\n{states}")

    def container(self, service: str) -> Container:
        label = f"com.docker.compose.service={service}"
        found = self.client.containers.list(
            all=True, filters={"label": [label, f"com.docker.compose.project={self.project}"]}, ignore_removed=True
        )
        return found[0]

    def containers(self) -> list[Container]:
        return self.client.containers.list(
            all=True, filters={"label": f"com.docker.compose.project={self.project}"}, ignore_removed=True
        )

    def jobs(self, *, stopped: bool = False) -> list[str]:
        """The jobs whose containers there are, of this stack's worker."""
        label = f"{LABEL}worker={self.project}-cpu"
        found = self.client.containers.list(all=stopped, filters={"label": label}, ignore_removed=True)
        return [container.labels[f"{LABEL}job"] for container in found]

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text()

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.prefect_port}/api"

    @cached_property
    def api(self) -> httpx.Client:
        name, _, password = self.secret("prefect_auth").partition(":")
        return httpx.Client(base_url=self.api_url, auth=(name, password), timeout=90)

    def s3(self) -> Any:
        import boto3
        from botocore.config import Config

        lines = dict(line.split(" = ") for line in self.secret("store_credentials").splitlines()[1:])
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.s3_port}",
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
            **lines,
        )

    def run_deployment(self, name: str, order: dict[str, Any]) -> dict[str, Any]:
        """Waits until the run ended, as a script of an operator does; its state's type, message and id."""
        script = (
            "import json, sys; from prefect.deployments import run_deployment; "
            "run = run_deployment(sys.argv[1], parameters={'order': json.loads(sys.argv[2])}, poll_interval=1); "
            "print(json.dumps({'id': str(run.id), 'type': run.state.type.value, 'message': run.state.message}))"
        )
        environment = {key: text for key, text in os.environ.items() if not key.startswith("PREFECT")}
        environment |= {
            "PREFECT_API_URL": self.api_url,
            "PREFECT_API_AUTH_STRING": self.secret("prefect_auth"),
            "PREFECT_HOME": str(self.folder / "client"),
            "DO_NOT_TRACK": "1",
        }
        command = [sys.executable, "-c", script, name, json.dumps(order)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def start_run(self, name: str, order: dict[str, Any]) -> str:
        deployment = self.api.get(f"/deployments/name/{name}").raise_for_status().json()["id"]
        body = {"parameters": {"order": order}, "state": {"type": "SCHEDULED"}}
        answer = self.api.post(f"/deployments/{deployment}/create_flow_run", json=body)
        return str(answer.raise_for_status().json()["id"])

    def cancel(self, run: str) -> None:
        body = {"state": {"type": "CANCELLING"}}
        assert self.api.post(f"/flow_runs/{run}/set_state", json=body).raise_for_status().json()["status"] == "ACCEPT"

    def state(self, run: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.api.get(f"/flow_runs/{run}").raise_for_status().json()["state"]
        return answer

    def wait_for_end(self, run: str, within_s: float) -> dict[str, Any]:
        until(lambda: self.state(run)["type"] in ENDED, f"run {run} ends", within_s, every_s=0.5)
        return self.state(run)

    def kill_worker(self) -> None:
        """As the kernel would: its first process, so that the engine starts the container again."""
        os.kill(self.container("worker").attrs["State"]["Pid"], signal.SIGKILL)


@contextmanager
def running_stack(folder: Path, client: docker.DockerClient, *, hub: str, config: Path, token: str) -> Iterator[Stack]:
    """hub: an address that containers reach; config: the folder with catalogue.yaml; token: the hub's.

    Needs the images jobs and measure: the worker builds what it lacks.
    """
    project = f"draftmill-test-{os.getpid()}"
    prefect_port, s3_port = free_ports(2)
    stack = Stack(folder, client, prefect_port, s3_port, project)
    environment = os.environ | {
        "DRAFTMILL_SECRETS": str(folder / "secrets"),
        "DRAFTMILL_ENV": str(folder / "env"),
        "HF_TOKEN": token,
    }
    subprocess.run([ROOT / "stack" / "setup"], env=environment, check=True, capture_output=True)
    settings = {
        "COMPOSE_PROJECT_NAME": project,
        "WORKER_IMAGE": f"draftmill-test/worker:{os.getpid()}",
        "WORKER_BASE": JOBS.tag,
        "DRAFTMILL_HOST": project,
        "DRAFTMILL_HOME": folder / "home",
        "DRAFTMILL_SECRETS": folder / "secrets",
        "DRAFTMILL_CONFIG": config,
        "DRAFTMILL_PREFECT_PORT": prefect_port,
        "DRAFTMILL_S3_PORT": s3_port,
        "DRAFTMILL_LOST_AFTER_S": LOST_AFTER_S,
        "DRAFTMILL_IMAGES": "jobs measure",
        "DRAFTMILL_CRON": "30 2 29 2 *",
        "HF_ENDPOINT": hub,
    }
    with (folder / "env").open("a") as file:
        file.writelines(f"{name}={text}\n" for name, text in settings.items())
    try:
        started = time.monotonic()
        weed = Path(sysconfig.get_path("scripts")) / "weed"
        subprocess.run([ROOT / ".ci" / "stack" / "images"], env=os.environ | {"WEED": str(weed)}, check=True)
        stack.seconds["bases"] = time.monotonic() - started
        stack.compose("build", "worker")
        stack.seconds["build"] = time.monotonic() - started
        stack.up()
        stack.seconds["up"] = time.monotonic() - started
        yield stack
    finally:
        stack.compose("down", "-v", "-t", "3", check=False)
        with suppress(docker.errors.ImageNotFound):
            client.images.remove(f"draftmill-test/worker:{os.getpid()}", force=True, noprune=True)
