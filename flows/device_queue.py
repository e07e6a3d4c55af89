"""The queue for a device: a strict limit of one on the Prefect server, seen and steered there.

The fence is the kernel lock that a job takes for its device work (draftmill.measurement.device.lock); the queue keeps
runs from starting jobs that would only wait.

Prefect's slots outlive a holder that is killed: a lease lives at least 60 s, the private server runs no service that
ends it, and a server with the default lease storage forgets it for good. So who enters the queue first takes
`<lock>.queue` in the folder of locks, which the kernel frees, and after that looks at the slot: where it is taken
although the last holder was killed, or on a server that nobody else uses, it was left behind. The limit is then made
anew and not reset, since an old lease that ends later would free the next holder's slot.

Import this inside flows.prefect_server.prefect_server.
"""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectException

from draftmill.kernel_lock import hold
from draftmill.measurement.device.lock import HELD, lock_folder
from draftmill.measurement.device.profiles import Device
from draftmill.outcome import Temporary, Unavailable
from draftmill.progress import Progress, silent
from flows.prefect_server import PRIVATE

HOST = "DRAFTMILL_HOST"
"""Environment variable: the host's name, where the flow runs in a container that has another."""
# Prefect logs a slot that is taken as an error; here it is an answer. A filter, since Prefect sets levels anew.
logging.getLogger("prefect._internal.concurrency").addFilter(
    lambda record: "ConcurrencySlotAcquisition" not in record.getMessage()
)
LEASE_S = 60
"""The least that Prefect accepts."""
POLL_S = 1.0


def limit_name(device: Device) -> str:
    """A device is one of its host's."""
    return f"draftmill-{os.environ.get(HOST) or socket.gethostname()}-{device.lock}"


@contextlib.contextmanager
def device_queue(
    device: Device, *, run: str, wait_s: float, folder: Path | None = None, progress: Progress = silent
) -> Iterator[None]:
    """Has the device's slot inside the block; waits for it up to `wait_s` seconds, which `progress` counts.

    Around the device work only. run: whose work it is. Raises Temporary (device.held, device.queue) when it stays
    taken, Unavailable when the Prefect server does not give it.
    """
    deadline = time.monotonic() + wait_s
    path = (folder or lock_folder()) / f"{device.lock}.queue"
    with hold(path, f"the queue for {device.name}", run=run, wait_s=wait_s, progress=progress, code=HELD) as killed:
        slot = _slot(limit_name(device), deadline, bool(killed) or PRIVATE in os.environ, progress)
        try:
            yield
        finally:
            # The work is done by now; a server that is gone must not make a failure of it. The next run frees the slot.
            with contextlib.suppress(httpx.HTTPError, PrefectException):
                slot.close()


def _slot(name: str, deadline: float, left_behind: bool, progress: Progress) -> contextlib.ExitStack:
    """The slot, taken. left_behind: one that is taken is nobody's."""
    started = time.monotonic()
    while True:
        try:
            _ensure_limit(name)
            if slot := _try(name):
                return slot
            if left_behind:
                _remove_limit(name)
                left_behind = False
                continue
        except (ConcurrencySlotAcquisitionError, httpx.HTTPError, PrefectException) as error:
            sentence = f"The Prefect server does not give the slot of {name}: {error}"
            raise Unavailable(sentence, code="device.queue_server", where=name) from error
        if time.monotonic() >= deadline:
            sentence = (
                f"The slot of {name} stays taken. If no run has it (prefect gcl inspect {name}), "
                f"free it: prefect gcl update {name} --active-slots 0"
            )
            raise Temporary(sentence, code="device.queue", where=name)
        progress(f"waiting for {name}, seconds", int(time.monotonic() - started), int(deadline - started))
        time.sleep(POLL_S)


def _ensure_limit(name: str) -> None:
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=1))


def _remove_limit(name: str) -> None:
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        client.delete_global_concurrency_limit_by_name(name)


def _try(name: str) -> contextlib.ExitStack | None:
    """The slot, or None when it is taken."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(
                concurrency(
                    name,
                    max_retries=0,
                    lease_duration=LEASE_S,
                    strict=True,  # without it a limit that is missing lets everybody in
                    raise_on_lease_renewal_failure=False,  # the lock still keeps others out; the work need not end
                )
            )
        except ConcurrencySlotAcquisitionError as error:
            cause = error.__cause__
            if isinstance(cause, httpx.HTTPStatusError) and cause.response.status_code == httpx.codes.LOCKED:
                return None
            raise
        return stack.pop_all()
