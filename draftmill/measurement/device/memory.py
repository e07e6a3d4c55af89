"""Memory of the host and of a device, before and after a measurement: what does not come back is said."""

import time
from collections.abc import Mapping

from draftmill.host import available_memory
from draftmill.measurement.device.profiles import Device
from draftmill.outcome import Unavailable

AVAILABLE = "host_available"
_TOLERANCE = 256 << 20
_POLL_S = 0.2


def read_memory(device: Device) -> dict[str, int]:
    """Bytes: `host_available` (MemAvailable of /proc/meminfo), and in use by each counter that the profile names.

    Raises Unavailable for a counter that cannot be read.
    """
    available = available_memory()
    if available is None:
        raise Unavailable("/proc/meminfo names no MemAvailable: measuring needs Linux", code="device.host_memory")
    found = {AVAILABLE: available}
    for label, path in device.memory.items():
        try:
            found[label] = int(path.read_text())
        except (OSError, ValueError) as error:
            sentence = f"The memory counter {path} of {device.name} cannot be read: {error}; mend it in the profile."
            raise Unavailable(sentence, code="device.counter", where=str(path)) from error
    return found


def settled_memory(
    device: Device, before: Mapping[str, int], *, within_s: float = 5, tolerance: int = _TOLERANCE
) -> dict[str, int]:
    """`read_memory` when all is back to what it was `before`, or after `within_s`: drivers free a moment later."""
    deadline = time.monotonic() + within_s
    while memory_rise(before, after := read_memory(device), tolerance=tolerance) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return after


def memory_rise(before: Mapping[str, int], after: Mapping[str, int], *, tolerance: int = _TOLERANCE) -> tuple[str, ...]:
    """A remark for each memory of which more than `tolerance` bytes more are in use after than before."""
    rises = {label: after[label] - before[label] for label in before if label != AVAILABLE}
    rises["host memory"] = before[AVAILABLE] - after[AVAILABLE]
    return tuple(
        f"{label}: {rise >> 20} MiB more in use than before; something still holds them, or another program came"
        for label, rise in rises.items()
        if rise > tolerance
    )
