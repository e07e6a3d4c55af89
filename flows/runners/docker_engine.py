"""The Docker engine: reaching it, and clearing away containers whose run is gone."""

import os
import time
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from draftmill.outcome import Unavailable

LABEL = "draftmill."
"""Every container of ours has draftmill.run, .job, .device, .owner, .worker and .deadline (seconds since the epoch)."""
WORKER = "DRAFTMILL_WORKER"
"""Environment variable: the name of the stack's worker that the run is of."""


def connect() -> docker.DockerClient:
    """The engine that DOCKER_HOST names, else the local one. Raises Unavailable."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        sentence = (
            f"No Docker engine answers ({error}). Start it ('systemctl start docker'; in a checkout 'sudo .ci/engine' "
            "installs it too), allow this user to reach it (group docker), or use --runner process."
        )
        raise Unavailable(sentence, code="docker.no_engine") from error
    return client


def labels_of(*, run: str, job: str, device: str, lives_s: float) -> dict[str, str]:
    """lives_s: seconds from now after which a sweep may remove the container whatever its owner does."""
    values = {"run": run, "job": job, "device": device, "owner": owner(), "deadline": str(int(time.time() + lives_s))}
    values["worker"] = os.environ.get(WORKER, "")
    return {LABEL + name: value for name, value in values.items()}


def owner() -> str:
    """This process, so that another can tell whether it still lives: boot, PID namespace, PID, start time."""
    return f"{_here()}/{os.getpid()}/{_started(os.getpid())}"


def sweep(client: docker.DockerClient, worker: str = "") -> list[str]:
    """Removes our containers whose deadline passed or whose owner is gone; their names.

    worker: one that starts just now, so that whatever is of this name was left by an earlier life of it.
    """
    removed = []
    for container in client.containers.list(all=True, filters={"label": LABEL + "owner"}, ignore_removed=True):
        if _is_orphan(container.labels) or (worker and container.labels.get(LABEL + "worker") == worker):
            remove(container)
            removed.append(str(container.name))
    return removed


def remove(container: Container) -> None:
    """Kills and removes; fine when it is gone, or going."""
    try:
        container.remove(force=True, v=True)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409:  # removal is in progress
            raise


def _is_orphan(labels: dict[str, str]) -> bool:
    if float(labels.get(LABEL + "deadline", "0")) < time.time():
        return True
    here, pid, started = labels[LABEL + "owner"].rsplit("/", 2)
    # The process numbers of another host or PID namespace say nothing here; those wait for their deadline.
    return here == _here() and _started(int(pid)) != started


def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Clock ticks after boot at which the process started; empty when there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
