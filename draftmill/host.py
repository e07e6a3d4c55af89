"""What this host has: memory, and cores that this process may use."""

import os
import re
from pathlib import Path

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)


def available_memory() -> int | None:
    """Bytes that a new process can take without swapping (MemAvailable of /proc/meminfo); None where none are told."""
    try:
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text(errors="replace"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def total_memory() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
