"""What every runner offers. A job is the same module in each; the runner is the only difference."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jobs.contract import Result

Events = Callable[[dict[str, Any]], None]
"""Gets each JSON line a job prints, and its other lines as {"event": "stderr", "line": ...}."""

GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """What one job may use. Bytes, seconds, process count."""

    memory_bytes: int = 4 * GIB
    pids: int = 256
    timeout_s: float = 6 * 3600
    scratch_bytes: int = 256 << 20
    network: bool = False


class Runner(Protocol):
    name: str

    def code_digest(self, job: str, parameters: dict[str, Any]) -> str:
        """Digest of what would run for this job: part of the job key."""
        ...

    def run(
        self,
        job: str,
        folder: Path,
        *,
        inputs: dict[str, Path],
        parameters: dict[str, Any],
        secrets: dict[str, Path],
        limits: Limits,
        events: Events,
    ) -> Result:
        """Writes folder/request.json, runs the job, returns folder/result.json, or a failure that says why not."""
        ...

    def stop(self) -> None:
        """Ends every job that runs now, from another thread. Their `run` returns a failure, and so does every later
        one."""
        ...
