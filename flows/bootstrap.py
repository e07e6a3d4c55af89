"""`python -m flows.bootstrap`: what a stack's Prefect server and store have to hold before the first run.

The work pool, the deployments, the automation that marks lost runs as crashed, the bucket and its probe. Every start
of the stack, and every device host that joins, runs it; what is as it should be stays as it is.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from draftmill.outcome import BadConfiguration, Unavailable
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from draftmill.store.s3_endings import explained, status_of
from flows.stack_program import run, say

ROOT = Path(__file__).resolve().parents[1]
LOST = "Runs without a heartbeat are marked Crashed"
ENDINGS = tuple(f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed"))
HEARTBEAT = "prefect.flow-run.heartbeat"
STORE_S = 60
SERVER_S, DEPLOY_S = 300, 120
AWAY = re.compile(r"httpx\.\w+|httpcore\.\w+|Can't connect to Server API[^\n]*")
"""What Prefect's command ends with where its server is not reached."""


def _patiently(step: Callable[[], None]) -> None:
    """Every step may be done again. A server that has just answered its health check may be away on a busy host.

    Raises Unavailable when it stays away.
    """
    from prefect.exceptions import PrefectHTTPStatusError

    deadline = time.monotonic() + SERVER_S
    while True:
        try:
            return step()
        except (httpx.TransportError, PrefectHTTPStatusError, subprocess.TimeoutExpired) as error:
            refused = isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500
            if refused or time.monotonic() > deadline:
                raise Unavailable(
                    f"The Prefect server does not do what it is asked ({type(error).__name__}: {error}): look at "
                    "`docker compose logs server`.",
                    code="bootstrap.server",
                ) from error
            say("bootstrap", f"the Prefect server is away ({type(error).__name__}); trying again")
            time.sleep(2)


def main() -> None:
    pool = os.environ["DRAFTMILL_POOL"]
    _patiently(lambda: make_pool(pool))
    _patiently(lambda: deploy(os.environ["DRAFTMILL_DEPLOYMENTS"]))
    if lost_after := os.environ["DRAFTMILL_LOST_AFTER_S"]:  # a device host leaves it to the server's
        _patiently(lambda: watch_heartbeats(timedelta(seconds=float(lost_after))))
    prepare_store(os.environ["DRAFTMILL_STORE"])


def make_pool(name: str) -> None:
    """A process pool: its workers run flows, which start every job in a container of its own."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
            say("bootstrap", f"made the work pool {name}")
        except ObjectAlreadyExists:
            say("bootstrap", f"the work pool {name} is there")


def deploy(file: str) -> None:
    """Raises BadConfiguration when Prefect does not take the file, httpx.TransportError when its server is away."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", file]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=DEPLOY_S
    )
    if away := AWAY.search(done.stdout + done.stderr) if done.returncode else None:
        raise httpx.TransportError(away[0])
    if done.returncode:
        raise BadConfiguration(f"{file} was not deployed:\n{done.stdout}{done.stderr}", code="bootstrap.deploy")
    say("bootstrap", f"deployed {file}")


def watch_heartbeats(lost_after: timedelta) -> None:
    """A run whose host is lost says nothing more, and would stay Running for ever.

    Left alone where it is the same: a new automation sees only runs that beat after it was made.
    """
    from prefect.automations import Automation
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    trigger = EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*"},
        for_each={"prefect.resource.id"},
        after={HEARTBEAT},
        expect={HEARTBEAT, *ENDINGS},
        posture=Posture.Proactive,
        threshold=1,
        within=lost_after,
    )
    sentence = f"No heartbeat for {lost_after.total_seconds():g} s: its worker or its host is gone."
    action = ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=sentence, force=False)
    with get_client(sync_client=True) as client:
        found = client.read_automations_by_name(LOST)
        if any(a.trigger.within == lost_after and a.enabled for a in found if isinstance(a.trigger, EventTrigger)):
            say("bootstrap", "the automation for lost runs is there")
            return
        for old in found:
            client.delete_automation(old.id)
    Automation(name=LOST, trigger=trigger, actions=[action]).create()
    say("bootstrap", f"lost runs are marked Crashed {lost_after.total_seconds():g} s after their last heartbeat")


def prepare_store(address: str) -> None:
    """Makes the bucket where it is missing and this may be done, then tries out what the store promises."""
    from botocore.exceptions import BotoCoreError, ClientError

    store = open_store(address)
    client, bucket = getattr(store, "client", None), getattr(store, "bucket", "")
    deadline = time.monotonic() + STORE_S
    while client is not None:
        try:
            client.head_bucket(Bucket=bucket)
            break
        except ClientError as error:
            if status_of(error) == 404:
                with explained(store.name):
                    make_bucket(client, bucket)
                say("bootstrap", f"made the bucket {bucket}")
                break
            if time.monotonic() > deadline:
                break  # the probe says what is wrong
        except BotoCoreError:
            if time.monotonic() > deadline:
                break
        time.sleep(1)
    ready_store(store, Path(os.environ.get("PREFECT_HOME", ".")) / "probes")
    say("bootstrap", f"{store.name} keeps what publishing rests on")


def make_bucket(client: Any, bucket: str) -> None:
    """Raises what boto3 does. Of two hosts that join at once one makes it."""
    region = client.meta.region_name
    # AWS takes no constraint for the region that it makes buckets in by itself, and asks for one in every other.
    place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    with suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=bucket, **place)


if __name__ == "__main__":
    run("bootstrap", main)
