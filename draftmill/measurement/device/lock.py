"""One holder of a device at a time: a kernel lock on a file of the host that the device is in.

Who does the device work takes it, so that it is never free while somebody works. The files lie in one folder for all
users of the host, and a container that is given a device is given its file.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from draftmill.kernel_lock import FOR_ANYBODY, hold
from draftmill.measurement.device.profiles import Device
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent

HELD = "device.held"
LOCKS = "DRAFTMILL_DEVICE_LOCKS"
"""Environment variable that names the folder, the same for every user and container of a host."""


def lock_folder() -> Path:
    """The folder that LOCKS names, else the first of /run/lock and /tmp that every user can write to.

    What this user may do does not decide: two users must come to the same answer.
    """
    if named := os.environ.get(LOCKS):
        return Path(named)
    for shared in (Path("/run/lock"), Path("/tmp")):  # noqa: S108 - the files are opened without following links
        with contextlib.suppress(OSError):
            if stat.S_IMODE(shared.stat().st_mode) & FOR_ANYBODY == FOR_ANYBODY:
                return shared / "draftmill"
    raise BadConfiguration(f"neither /run/lock nor /tmp is open to all users: set {LOCKS} to a folder that is")


def lock_path(device: Device, folder: Path | None = None) -> Path:
    return (folder or lock_folder()) / f"{device.lock}.lock"


@contextlib.contextmanager
def device_lock(
    device: Device,
    *,
    run: str,
    folder: Path | None = None,
    wait_s: float = 0,
    progress: Progress = silent,
) -> Iterator[None]:
    """Holds the device inside the block; waits for it up to `wait_s` seconds, which `progress` counts.

    run: whose work it is, for others to read. Raises Temporary (device.held) that says who holds it, and
    BadConfiguration where the lock's file cannot be had.
    """
    path = lock_path(device, folder)
    with hold(path, f"device {device.name}", run=run, wait_s=wait_s, progress=progress, code=HELD):
        yield
