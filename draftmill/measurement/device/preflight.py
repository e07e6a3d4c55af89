"""Is a device ready to be measured on? It is opened for real, and all that is missing is named at once."""

import contextlib
import errno
import grp
import os
import platform
import resource
import stat
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from draftmill.kernel_lock import held_by
from draftmill.measurement.device.lock import lock_path
from draftmill.measurement.device.memory import read_memory
from draftmill.measurement.device.profiles import UNLIMITED, Device, Node
from draftmill.measurement.servers.flags import Help, Settings, asked, command_line, read_help
from draftmill.measurement.servers.providers import Provider
from draftmill.outcome import BadConfiguration, Refusal, Refused, Unavailable

_ANSWER_SECONDS = 60
_ANSWER_CHARACTERS = 4000
_LIST, _VERSION = "--list-devices", "--version"


@dataclass
class Preflight:
    """facts: what was found, JSON values; refusals: all that is missing; remarks: what is absent and may be."""

    device: str
    facts: dict[str, Any] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return not self.refusals

    def check(self) -> None:
        """Raises Refused where something is missing."""
        if self.refusals:
            raise Refused(*self.refusals)

    def as_json(self) -> dict[str, Any]:
        return {"ready": self.ready, **asdict(self)}


def preflight(device: Device) -> Preflight:
    """Opens each node, looks for drivers, layers and limits, and asks the engine whether it sees the device.

    Takes no lock, loads no model. Raises nothing for what is missing: see Preflight.refusals.
    """
    found = Preflight(device.name)
    found.facts["kernel"] = platform.release()
    found.facts["nodes"] = {str(node.path): _open(node, found) for node in device.nodes}
    _look_at_modules(device, found)
    _look_at_memlock(device, found)
    for label, path in device.needs.items():
        if not os.access(path, os.R_OK):
            _miss(found, "need_missing", path, None, label, f"{label} is not there: install it, or mount it")
    found.facts["needs"] = {label: str(path) for label, path in device.needs.items() if path.exists()}
    found.facts["versions"] = {label: _read(path, label, found) for label, path in device.versions.items()}
    _look_at_memory(device, found)
    found.facts["held_by"] = held_by(lock_path(device)) or None
    _ask_engine(device, found)
    return found


def _miss(found: Preflight, code: str, where: object, measured: Any, expected: Any, sentence: str) -> None:
    found.refusals.append(Refusal(f"device.{code}", str(where), measured, expected, sentence))


def _open(node: Node, found: Preflight) -> dict[str, Any]:
    """What the node is; that it cannot be opened is a refusal, or a remark for one that may be absent."""
    try:
        status = node.path.stat()
    except OSError as error:
        advice = "load its driver, or pass it to the container"
        _miss_node(node, found, "node_missing", error, f"{node.path} is not there: {advice}")
        return {"opened": False}
    if not stat.S_ISCHR(status.st_mode):
        advice = "name one node, a folder would pass every device in it" if node.path.is_dir() else "name a device node"
        _miss(found, "node_kind", node.path, stat.filemode(status.st_mode), "a character device", advice)
        return {"opened": False}
    facts = {
        "opened": True,
        "number": f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}",
        "group": status.st_gid,
        "mode": stat.filemode(status.st_mode),
    }
    try:
        os.close(os.open(node.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        facts["opened"] = False
        _miss_node(node, found, *_why_closed(node.path, error, status.st_mode, status.st_gid))
    return facts


def _why_closed(path: Path, error: OSError, mode: int, group: int) -> tuple[str, OSError, str]:
    if error.errno == errno.EPERM:
        # The mode bits would say EACCES.
        return "node_forbidden", error, f"{path}: this container may not use it; pass it with read and write (--device)"
    if error.errno == errno.EACCES and mode & stat.S_IRGRP and mode & stat.S_IWGRP:
        name = _group_name(group)
        advice = f"usermod -aG {name} {os.getuid()} and log in again; in a container --group-add {group}"
        return "node_closed", error, f"{path} belongs to group {group} ({name}), which this process is not in: {advice}"
    if error.errno == errno.EACCES:
        advice = "give it a group that may read and write it (a udev rule with MODE=0660)"
        return "node_closed", error, f"{path} is closed to every group ({stat.filemode(mode)}): {advice}"
    return "node_broken", error, f"{path} is there and does not open: look at the driver's lines in dmesg"


def _miss_node(node: Node, found: Preflight, code: str, error: OSError, sentence: str) -> None:
    if node.required:
        measured = {
            "error": errno.errorcode.get(error.errno or 0, str(error)),
            "groups": sorted({os.getegid(), *os.getgroups()}),
        }
        _miss(found, code, node.path, measured, "opens for reading and writing", sentence)
    else:
        found.remarks.append(f"{sentence}; the profile does without")


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _look_at_modules(device: Device, found: Preflight) -> None:
    found.facts["modules"] = {}
    for module in device.modules:
        folder = Path("/sys/module", module)
        if folder.is_dir():
            version = next((_text(folder / name) for name in ("version", "srcversion") if _text(folder / name)), None)
            found.facts["modules"][module] = version
        else:
            sentence = f"the kernel module {module} is not loaded: modprobe {module}, or install its driver"
            _miss(found, "module", folder, None, module, sentence)


def _look_at_memlock(device: Device, found: Preflight) -> None:
    limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    soft, hard = (UNLIMITED if limit == resource.RLIM_INFINITY else limit for limit in limits)
    found.facts["memlock"] = {"soft": soft, "hard": hard}
    wanted = device.memlock
    if wanted is not None and soft != UNLIMITED and (wanted == UNLIMITED or soft < wanted):
        advice = "ulimit -l, /etc/security/limits.conf, LimitMEMLOCK= of the service, or --ulimit memlock= of Docker"
        sentence = f"this process may lock {soft} bytes, the device needs {_limit(wanted)}: raise it by {advice}"
        _miss(found, "memlock", "RLIMIT_MEMLOCK", soft, wanted, sentence)


def _look_at_memory(device: Device, found: Preflight) -> None:
    for label, path in device.memory.items():
        text = _text(path)
        if text is None or not text.isdecimal():
            sentence = f"{label} cannot be read, so that memory which stays held would not be noticed: mend its path"
            _miss(found, "counter", path, text, "bytes in use", sentence)
    with contextlib.suppress(Unavailable):  # a counter, told above
        found.facts["memory"] = read_memory(device)


def _limit(value: int) -> str:
    return "no limit" if value == UNLIMITED else f"{value}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()[:_ANSWER_CHARACTERS] or None
    except OSError:
        return None


def _read(path: Path, label: str, found: Preflight) -> str | None:
    text = _text(path)
    if text is None:
        found.remarks.append(f"{label} cannot be read from {path}")
    return text


def _ask_engine(device: Device, found: Preflight) -> None:
    try:
        provider = device.provider()
        help_ = read_help(provider.command, provider.digest(), provider.environment)
        command_line(help_, Settings(Path("model.gguf"), context=1, threads=1, **device.settings_options()))
    except BadConfiguration as error:
        code = "engine_missing" if error.code == "providers.missing" else "engine_broken"
        _miss(found, code, error.where, None, "a llama-server that runs", str(error))
        return
    except Refused as refused:
        found.refusals += refused.refusals
    found.facts["engine"] = {
        "name": provider.name,
        "program": str(provider.program),
        "sha256": provider.digest(),
        "version": _ask(provider, help_, _VERSION) or provider.build,
    }
    answer = _ask(provider, help_, _LIST)
    listed = None if answer is None else read_listing(answer)
    found.facts["engine"]["devices"] = listed
    wanted = [name for name in (device.device, device.draft_device) if name and name != "none"]
    names = dict.fromkeys(part for name in wanted for part in name.split(","))
    if names and listed is None:
        found.remarks.append(f"the engine cannot say which devices it sees ({_LIST}); asked for: {', '.join(names)}")
        return
    for name in names:
        if name not in (listed or {}):
            advice = "is it the right build, with its library path and variables (HSA_*), and is the driver loaded?"
            _miss(
                found, "not_listed", name, sorted(listed or ()), name, f"{provider.program} does not see it: {advice}"
            )


def _ask(provider: Provider, help_: Help, flag: str) -> str | None:
    """What the engine answers to a flag, as its own --help lists it. None where it does not have it or fails."""
    if not help_.has(flag):
        return None
    try:
        done = asked([*provider.command, flag], provider.environment, _ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    return said[:_ANSWER_CHARACTERS] if done.returncode == 0 else None


def read_listing(text: str) -> dict[str, str]:
    """Name -> description, of what llama-server prints for --list-devices (common/arg.cpp of llama.cpp)."""
    lines = text.partition("Available devices:")[2].splitlines()
    pairs = (line.strip().partition(": ") for line in lines if line.startswith("  "))
    return {name: description for name, _, description in pairs if description}
