"""A runner by its name."""

from draftmill.measurement.device.profiles import Device
from draftmill.outcome import BadConfiguration
from flows.runners.runner import Runner


def make_runner(name: str, device: Device | None = None) -> Runner:
    """device: what jobs that measure are given; a plain process has it anyway."""
    if name == "docker":
        from flows.runners.docker import DockerRunner

        return DockerRunner(device=device)
    if name == "process":
        from flows.runners.process import ProcessRunner

        return ProcessRunner()
    raise BadConfiguration(f"there is no runner {name!r}; known are process and docker", code="runner.unknown")
