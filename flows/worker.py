"""`python -m flows.worker`: a Prefect worker of one pool, once the images of its jobs are there.

The worker runs flows as processes; a flow runs each job in a container of its own, beside the worker's.
"""

import os
import sys

from draftmill.outcome import MillError
from flows.images import build_images
from flows.runners.docker_engine import WORKER, connect, sweep


def main() -> None:
    client = connect()
    worker = os.environ[WORKER]
    for name in sweep(client, worker):
        say(f"removed the container {name}, which was left behind")
    names = os.environ["DRAFTMILL_IMAGES"].split()
    if names:
        say(f"images: {', '.join(names)}; built where they are missing or of another source, which takes minutes")
    for tag, identity in build_images(client, names).items():
        say(f"{tag} is {identity}")
    options = ["--pool", os.environ["DRAFTMILL_POOL"], "--type", "process", "--limit", os.environ["DRAFTMILL_LIMIT"]]
    options += ["--name", worker, "--with-healthcheck"]
    command = [sys.executable, "-m", "prefect", "worker", "start", *options]
    os.execv(sys.executable, command)  # noqa: S606 - a list of our own


def say(sentence: str) -> None:
    print(f"worker: {sentence}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except MillError as error:
        say(str(error))
        sys.exit(error.exit_code)
