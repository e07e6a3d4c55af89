"""Two ways to build an image: BuildKit through a client on this machine, else the engine's older builder by its API.

A client has BuildKit through its buildx plug-in, or by itself when it is older than 23.
"""

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import docker
from docker.errors import APIError

STEP = re.compile(r"\[(?:\S+ )?(\d+)/(\d+)\]|^Step (\d+)/(\d+)")
LAST_LINES = 12


@dataclass(frozen=True)
class Order:
    """dockerfile: relative to the context folder; tag: the image's name; arguments and labels: name -> text."""

    dockerfile: str
    tag: str
    arguments: dict[str, str]
    labels: dict[str, str]


class NotBuilt(Exception):
    """Says the builder's last lines."""


Build = Callable[[Order], Iterator[tuple[int, int]]]
"""Builds, yielding (step, steps) as it goes. Raises NotBuilt."""


def builder(client: docker.DockerClient, context: Path) -> Build:
    for path in dict.fromkeys(filter(None, (shutil.which("docker"), shutil.which("docker", path="/usr/bin")))):
        if command := _buildkit(path):
            return partial(by_client, command, context)
    return partial(by_engine, client, context)


def by_client(command: list[str], context: Path, order: Order) -> Iterator[tuple[int, int]]:
    """command: the start of a client's build command that uses BuildKit."""
    options = ["--progress=plain", f"--file={order.dockerfile}", f"--tag={order.tag}"]
    options += [f"--build-arg={name}={text}" for name, text in order.arguments.items()]
    options += [f"--label={name}={text}" for name, text in order.labels.items()]
    with subprocess.Popen(
        [*command, *options, "."],
        cwd=context,
        env=os.environ | {"DOCKER_BUILDKIT": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield from _steps(process.stdout or (), lambda: process.wait() == 0)


def by_engine(client: docker.DockerClient, context: Path, order: Order) -> Iterator[tuple[int, int]]:
    failed = False

    def lines() -> Iterator[str]:
        nonlocal failed
        answers = client.api.build(
            path=str(context),
            dockerfile=order.dockerfile,
            tag=order.tag,
            buildargs=order.arguments,
            labels=order.labels,
            rm=True,
            forcerm=True,
            decode=True,
        )
        try:
            for answer in answers:
                failed = failed or "error" in answer
                yield from str(answer.get("error") or answer.get("stream", "")).splitlines()
        except APIError as error:
            failed = True
            yield str(error)

    yield from _steps(lines(), lambda: not failed)


def _buildkit(client: str) -> list[str] | None:
    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([client, *words], capture_output=True, text=True, check=False)

    if asked("buildx", "version").returncode == 0:
        return [client, "buildx", "build", "--load", "--provenance=false"]
    version = re.search(r"version (\d+)\.", asked("--version").stdout)
    return [client, "build"] if version and int(version[1]) < 23 else None


def _steps(lines: Iterable[str], succeeded: Callable[[], bool]) -> Iterator[tuple[int, int]]:
    tail: deque[str] = deque(maxlen=LAST_LINES)
    for line in lines:
        tail.append(line.rstrip())
        if step := STEP.search(line):
            done, total = (int(number) for number in step.groups() if number)
            yield done, total
    if not succeeded():
        raise NotBuilt("\n".join(tail))
