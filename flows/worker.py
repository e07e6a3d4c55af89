"""`python -m flows.worker`: a Prefect worker of one pool, once the images of its jobs are there.

The worker runs flows as processes; a flow runs each job in a container of its own, beside the worker's.
"""

import os
import sys

from flows.images import build_images
from flows.runners.docker_engine import WORKER, connect, sweep
from flows.stack_program import run, say


def main() -> None:
    client = connect()
    worker = os.environ[WORKER]
    for name in sweep(client, worker):
        say("worker", f"removed the container {name}, which was left behind")
    names = os.environ["DRAFTMILL_IMAGES"].split()
    if names:
        say(
            "worker",
            f"images: {', '.join(names)}; built where they are missing or of another source, which takes minutes",
        )
    for tag, identity in build_images(client, names).items():
        say("worker", f"{tag} is {identity}")
    options = ["--pool", os.environ["DRAFTMILL_POOL"], "--type", "process", "--limit", os.environ["DRAFTMILL_LIMIT"]]
    options += ["--name", worker, "--with-healthcheck"]
    command = [sys.executable, "-m", "prefect", "worker", "start", *options]
    os.execv(sys.executable, command)  # noqa: S606 - a list of our own


if __name__ == "__main__":
    run("worker", main)
