"""The machine a measurement ran on."""

import platform
import re
from pathlib import Path

from draftmill.host import cores, total_memory
from draftmill.measurement.record import Machine

_MODEL = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)


def read_machine() -> Machine:
    found = _MODEL.search(_text("/proc/cpuinfo"))
    return Machine(
        cpu=found[1].strip() if found else platform.machine(),
        cores=cores(),
        memory=total_memory(),
        system=f"{platform.system()} {platform.release()}",
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
