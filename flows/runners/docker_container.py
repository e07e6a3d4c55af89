"""What a job's container is given, and nothing else.

A read-only root, no capability, no new privileges, limits of memory (swap counted) and processes, an init process, a
small memory file system for scratch, the inputs read-only, and the job folder; the jobs that measure on a device also
what docker_devices.py says.
"""

from dataclasses import dataclass
from pathlib import Path

from docker.api import APIClient
from docker.types import LogConfig, Mount

from flows.runners.docker_devices import SCRATCH, Passthrough
from flows.runners.docker_network import Network
from flows.runners.runner import Limits

PRIVATE = "rw,noexec,nosuid,nodev"


@dataclass(frozen=True)
class Plan:
    """image: its ID; folder, inputs: places on the host; uid, gid: who the job runs as."""

    image: str
    job: str
    folder: Path
    inputs: dict[str, Path]
    limits: Limits
    network: Network
    uid: int
    gid: int
    with_secrets: bool
    labels: dict[str, str]
    device: Passthrough


def command(plan: Plan) -> list[str]:
    options = ["--secrets"] if plan.with_secrets else []
    options += ["--relay", plan.network.relay] if plan.network.relay else []
    return ["python", "-m", "jobs.supervisor", *options, plan.job, "/job", str(plan.limits.timeout_s)]


def create(api: APIClient, plan: Plan) -> str:
    """The new container's ID; not started. Raises docker.errors.APIError."""
    mounts = [Mount("/job", str(plan.folder.resolve()), type="bind"), *plan.network.mounts, *plan.device.mounts]
    for slot, source in plan.inputs.items():
        mounts.append(Mount(f"/in/{slot}", str(source.resolve()), type="bind", read_only=True))
    fixed = {"HOME": SCRATCH, "TMPDIR": SCRATCH, "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    created = api.create_container(
        plan.image,
        command(plan),
        user=f"{plan.uid}:{plan.gid}",
        stdin_open=True,  # and not detached: docker-py then asks for AttachStdin and StdinOnce
        environment=fixed | plan.network.environment | plan.device.environment,
        labels=plan.labels,
        host_config=api.create_host_config(
            mounts=mounts,
            network_mode=plan.network.mode,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            init=True,
            pids_limit=plan.limits.pids,
            mem_limit=plan.limits.memory_bytes,
            memswap_limit=plan.limits.memory_bytes,
            tmpfs={
                SCRATCH: f"{PRIVATE},mode=1777,size={plan.limits.scratch_bytes}",
                "/run/secrets": f"{PRIVATE},mode=0700,uid={plan.uid},gid={plan.gid},size=1m",
            },
            devices=plan.device.nodes,  # type: ignore[arg-type]  # mappings are taken too, as docker.utils says
            group_add=plan.device.groups,
            ulimits=plan.device.ulimits,
            log_config=LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
        ),
    )
    return str(created["Id"])
