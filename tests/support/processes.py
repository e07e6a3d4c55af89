"""Processes as /proc shows them."""

from contextlib import suppress
from pathlib import Path


def runs(pid: int) -> bool:
    """A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def with_arguments(*texts: str) -> list[int]:
    """Those whose command lines hold every one of these texts."""
    return _holding("cmdline", texts)


def with_variables(*texts: str) -> list[int]:
    """Those whose environments hold every one of these texts."""
    return _holding("environ", texts)


def _holding(file: str, texts: tuple[str, ...]) -> list[int]:
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with suppress(OSError):
            content = path.read_bytes()
            if all(text.encode() in content for text in texts):
                found.append(int(path.parent.name))
    return found
