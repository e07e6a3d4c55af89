"""The Docker engine of the tests, and an image with the probe job in it."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from draftmill.outcome import MillError
from flows.images import JOBS, Image, build_images
from flows.runners.docker_engine import connect

PROBE = Image("probe", public_base=JOBS.tag, debian=())
PROBE_SOURCE = Path(__file__).with_name("probe_job.py")


def engine() -> docker.DockerClient:
    """The engine, or a skip by name; a failure when DRAFTMILL_REQUIRE_DOCKER=1."""
    return _or_skip(connect)


def jobs_image() -> docker.DockerClient:
    """The engine, with the jobs image built from this source."""
    client = engine()
    _or_skip(lambda: build_images(client, ["jobs"]))
    return client


def stock_image() -> docker.DockerClient:
    """The engine, with the stock image built from this source."""
    client = engine()
    _or_skip(lambda: build_images(client, ["stock"]))
    return client


def measure_image() -> docker.DockerClient:
    """The engine, with the measure image built from this source."""
    client = engine()
    _or_skip(lambda: build_images(client, ["measure"]))
    return client


def probe_image() -> docker.DockerClient:
    """The engine, with the probe image on top of the jobs image."""
    client = jobs_image()
    dockerfile = f"FROM {JOBS.tag}\nCOPY probe_job.py /opt/draftmill/source/jobs/probe.py\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, content in (("Dockerfile", dockerfile), ("probe_job.py", PROBE_SOURCE.read_bytes())):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=PROBE.tag, rm=True)
    return client


def _or_skip(attempt: Callable[[], Any]) -> Any:
    try:
        return attempt()
    except MillError as error:
        if os.environ.get("DRAFTMILL_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(str(error))
