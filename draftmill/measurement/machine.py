"""The machine a measurement ran on."""

import os
import platform
import re
from pathlib import Path

from draftmill.measurement.record import Machine

_MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)


def read_machine() -> Machine:
    found = _MODEL.search(_text("/proc/cpuinfo"))
    return Machine(
        cpu=found[1].strip() if found else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=f"{platform.system()} {platform.release()}",
    )


def available_bytes() -> int | None:
    """Memory that a new process can take without swapping (MemAvailable of /proc/meminfo)."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
