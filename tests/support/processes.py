"""Processes as /proc shows them."""

from contextlib import suppress
from pathlib import Path


def runs(pid: int) -> bool:
    """A zombie does not."""
    return _state_and_group(pid)[0] not in "ZX"


def of_group(group: int) -> list[int]:
    """Those of a process group that run."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _state_and_group(pid)[1] == group and runs(pid)]


def with_arguments(*texts: str) -> list[int]:
    """Those whose command lines hold every one of these texts."""
    return _holding("cmdline", texts)


def with_variables(*texts: str) -> list[int]:
    """Those whose environments hold every one of these texts."""
    return _holding("environ", texts)


def _state_and_group(pid: int) -> tuple[str, int]:
    """X, dead, for one that is gone: any can go while it is looked at."""
    try:
        state, _, group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    return state, int(group)


def _holding(file: str, texts: tuple[str, ...]) -> list[int]:
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with suppress(OSError):
            content = path.read_bytes()
            if all(text.encode() in content for text in texts):
                found.append(int(path.parent.name))
    return found
