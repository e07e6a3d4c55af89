"""A runner by its name."""

from draftmill.outcome import BadConfiguration
from flows.runners.runner import Runner


def make_runner(name: str) -> Runner:
    if name == "docker":
        from flows.runners.docker import DockerRunner

        return DockerRunner()
    if name == "process":
        from flows.runners.process import ProcessRunner

        return ProcessRunner()
    raise BadConfiguration(f"there is no runner {name!r}; known are process and docker", code="runner.unknown")
