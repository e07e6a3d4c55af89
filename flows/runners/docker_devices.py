"""What a container is given to reach a device: nodes, groups by number, a memlock limit, the host's engine, the lock.

Only the jobs that work on a device get any of it (flows.images.MEASURING).
"""

from dataclasses import dataclass, field
from pathlib import Path

from docker.types import Mount, Ulimit

from draftmill.kernel_lock import make_lock
from draftmill.measurement.device.lock import LOCKS, lock_path
from draftmill.measurement.device.profiles import Device
from draftmill.outcome import Refusal, Refused
from flows.images import MEASURING

SCRATCH = "/tmp"  # noqa: S108
NOT_BELOW = tuple(map(Path, ("/opt/draftmill", "/job", "/in", "/run/secrets", "/run/relay", "/proc", "/sys", "/dev")))
NOT_OVER = (*NOT_BELOW, *map(Path, ("/bin", "/etc", "/lib", "/lib64", SCRATCH, "/usr/bin", "/usr/lib", "/usr/local")))


@dataclass(frozen=True)
class Passthrough:
    """device: the profile's name, for the label; nodes as the engine's API takes them; groups: numbers."""

    device: str = ""
    nodes: list[dict[str, str]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    ulimits: list[Ulimit] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


NOTHING = Passthrough()


def passthrough_for(device: Device | None, job: str) -> Passthrough:
    """Raises Refused that names every node and every mount of the profile that this host does not have."""
    if device is None or job not in MEASURING:
        return NOTHING
    there = [node for node in device.nodes if node.path.exists()]
    sources = () if isinstance(device.engine, str) else device.engine.mounts
    missing = [node.path for node in device.nodes if node.required and node not in there]
    refusals = [_missing(path, "load its driver") for path in missing]
    refusals += [_missing(path, "mend the profile's mounts") for path in sources if not path.exists()]
    refusals += [_covering(path) for path in sources if _covers_ours(path)]
    if refusals:
        raise Refused(*refusals)
    groups = {node.path.stat().st_gid if node.group is None else node.group for node in there}
    memlock = device.memlock
    lock = lock_path(device)
    make_lock(lock)
    return Passthrough(
        device=device.name,
        nodes=[_node(node.path) for node in there],
        groups=sorted(groups),
        ulimits=[] if memlock is None else [Ulimit(name="memlock", soft=memlock, hard=memlock)],
        mounts=[
            *(Mount(str(path), str(path.resolve()), type="bind", read_only=True) for path in sources),
            Mount(str(lock), str(lock), type="bind"),
        ],
        environment={LOCKS: str(lock.parent)},
    )


def _node(path: Path) -> dict[str, str]:
    """Not as text with colons, which names of /dev/dri/by-path hold themselves."""
    return {"PathOnHost": str(path), "PathInContainer": str(path), "CgroupPermissions": "rw"}


def _missing(path: Path, advice: str) -> Refusal:
    return Refusal("device.host_lacks", str(path), None, "there", f"{path} is not on this host: {advice}")


def _covers_ours(path: Path) -> bool:
    return any(ours.is_relative_to(path) for ours in NOT_OVER) or any(path.is_relative_to(ours) for ours in NOT_BELOW)


def _covering(path: Path) -> Refusal:
    sentence = f"{path} would cover what a container needs itself: name the folders of the engine alone"
    return Refusal("device.mount", str(path), str(path), "a folder of the engine", sentence)
