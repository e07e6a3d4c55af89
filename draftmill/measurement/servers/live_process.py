"""Facts of a running process, read from Linux's /proc (man 5 proc)."""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from draftmill.digest import sha256_file

_MAPPED_CODE = re.compile(r"\S+ ..x. \S+ \S+ \d+ +(?P<path>/.*)")
_LISTENING = "0A"


@dataclass(frozen=True)
class Mapped:
    """A file whose code the process runs. `sha256` is None where it is gone; Linux then adds " (deleted)" to `path`."""

    path: str
    sha256: str | None


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the number it names one process. None: it is gone."""
    fields = _stat(pid)
    # Field 22; a zombie runs nothing any more.
    return int(fields[19]) if fields and fields[0] != "Z" else None


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, ended threads included. Raises ProcessLookupError."""
    fields = _stat(pid)
    if not fields:
        raise ProcessLookupError(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_seconds(pid: int) -> float | None:
    """Time that the process's living threads were ready to run and had no core (schedstat's second field, in
    nanoseconds: Documentation/scheduler/sched-stats.rst). None where the kernel does not count it."""
    try:
        fields = [Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split() for thread in _threads(pid)]
        return sum(int(waited) for _, waited, _ in fields) / 1e9 if fields else None
    except (OSError, ValueError):
        return None


def memory_bytes(pid: int) -> tuple[int, int]:
    """(resident now, most resident so far). Raises ProcessLookupError."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError as error:
        raise ProcessLookupError(pid) from error
    found = {key: int(kib) * 1024 for key, kib in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE)}
    if len(found) < 2:
        raise ProcessLookupError(pid)
    return found["VmRSS"], found["VmHWM"]


def arguments(pid: int) -> list[str]:
    return _strings(Path(f"/proc/{pid}/cmdline"))


def environment(pid: int) -> dict[str, str]:
    """As it was at exec. Empty where it may not be read."""
    pairs = (entry.partition("=") for entry in _strings(Path(f"/proc/{pid}/environ")))
    return {name: value for name, _, value in pairs}


def mapped_code(pid: int, *, digests: bool = True) -> list[Mapped]:
    """The executable and every shared library, by path; without `digests` every sha256 is None."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {match["path"] for line in lines if (match := _MAPPED_CODE.fullmatch(line))}
    return [Mapped(path, _digest_or_none(path) if digests else None) for path in sorted(paths)]


def open_devices(pid: int) -> list[str]:
    """Paths of the device nodes of accelerators (/dev/dri, /dev/kfd, /dev/accel, /dev/nvidia*) that it has open."""
    wanted = ("/dev/dri/", "/dev/kfd", "/dev/accel/", "/dev/nvidia", "/dev/dxg")
    return sorted({target for _, target in _descriptors(pid) if target.startswith(wanted)})


def listening_sockets(pid: int) -> list[tuple[str, int]]:
    """(address in the kernel's hexadecimal, port) of every TCP socket that the process itself listens on."""
    inodes = {target[len("socket:[") : -1] for _, target in _descriptors(pid) if target.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.append((address, int(port, 16)))
    return found


def is_loopback(address: str) -> bool:
    """Of an address as `listening_sockets` gives it: 127.0.0.0/8 or ::1, in the host's byte order."""
    return (len(address) == 8 and address.endswith("7F")) or address == "00000000000000000000000001000000"


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _descriptors(pid: int) -> list[tuple[str, str]]:
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.append((name, os.readlink(f"/proc/{pid}/fd/{name}")))
            except OSError:
                continue
    except OSError:
        pass
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may itself hold spaces and parentheses: the first is field 3, the state."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _strings(path: Path) -> list[str]:
    try:
        return [part.decode(errors="replace") for part in path.read_bytes().split(b"\0") if part]
    except OSError:
        return []


def file_digest(path: Path) -> str:
    """SHA-256 of the file, computed once for each inode, size and time of change."""
    status = path.stat()
    return _digest(path, status.st_ino, status.st_size, status.st_mtime_ns)


def _digest_or_none(path: str) -> str | None:
    try:
        return file_digest(Path(path))
    except OSError:
        return None


@lru_cache(maxsize=256)
def _digest(path: Path, inode: int, size: int, modified: int) -> str:
    return sha256_file(path)
