"""The job contract: request.json in, out/ and result.json out, exit codes by sysexits.

A job module holds `def work(job: Job) -> None` and ends with `if __name__ == "__main__": main("name", work)`.
What it prints on standard output is one JSON event a line (progress, log); runners read those.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from draftmill.digest import sha256_file
from draftmill.outcome import BadConfiguration, MillError, Refused
from draftmill.whole_file import write_whole

CONTRACT_VERSION = 1
OK, INTERNAL = 0, 70
PROGRESS_EVERY_S = 0.2

Outcome = Literal["ok", "refused", "failed"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Request(Strict):
    """What a job is asked: `inputs` maps a slot to a read-only folder, `secrets` a name to a file that holds it."""

    job: str
    contract: int = CONTRACT_VERSION
    inputs: dict[str, Path] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[str, Path] = Field(default_factory=dict)


class Output(Strict):
    path: str
    size: int
    sha256: str


class Tool(Strict):
    name: str
    version: str
    digest: str | None = None


class RefusalRecord(Strict):
    code: str
    where: str
    measured: Any
    expected: Any
    sentence: str


class Result(Strict):
    job: str
    contract: int = CONTRACT_VERSION
    outcome: Outcome
    exit_code: int
    error: str | None = None
    error_code: str | None = None
    outputs: list[Output] = Field(default_factory=list)
    facts: dict[str, Any] = Field(default_factory=dict)
    refusals: list[RefusalRecord] = Field(default_factory=list)
    tools: list[Tool] = Field(default_factory=list)
    durations: dict[str, float] = Field(default_factory=dict)


class _Asked(dict[str, Any]):
    """What a request names of one kind; BadConfiguration for what it does not name."""

    def __init__(self, kind: str, named: Mapping[str, Any]) -> None:
        super().__init__(named)
        self._kind = kind

    def __missing__(self, name: str) -> Any:
        there = ", ".join(sorted(self)) or "none"
        raise BadConfiguration(f"The request has no {self._kind} {name!r}; it has {there}.", code="request.incomplete")


class Job:
    """A running job: its request, its output folder, and what it states."""

    def __init__(self, request: Request, out: Path) -> None:
        self.request = request
        self.parameters = _Asked("parameter", request.parameters)
        self._inputs = _Asked("input", request.inputs)
        self.out = out
        self.facts: dict[str, Any] = {}
        self.tools: list[Tool] = []
        self.durations: dict[str, float] = {}
        self._last_event = 0.0

    def input(self, slot: str) -> Path:
        return self._inputs[slot]

    def secret(self, name: str) -> str | None:
        """The secret's text, or None when the run has none. Never log it, never put it into a fact."""
        path = self.request.secrets.get(name)
        return path.read_text().strip() if path else None

    def fact(self, name: str, value: Any) -> None:
        self.facts[name] = value

    def tool(self, name: str, version: str, digest: str | None = None) -> None:
        self.tools.append(Tool(name=name, version=version, digest=digest))

    def progress(self, what: str, done: int, total: int) -> None:
        """A `draftmill.progress.Progress`; drops events that come too fast, never the last one."""
        now = time.monotonic()
        if done < total and now - self._last_event < PROGRESS_EVERY_S:
            return
        self._last_event = now
        _event({"event": "progress", "what": what, "done": done, "total": total})

    def log(self, message: str) -> None:
        _event({"event": "log", "message": message})


def _event(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _outputs(out: Path) -> list[Output]:
    files = sorted(p for p in out.rglob("*") if p.is_file())
    return [Output(path=p.relative_to(out).as_posix(), size=p.stat().st_size, sha256=sha256_file(p)) for p in files]


def perform(name: str, work: Callable[[Job], None], folder: Path) -> Result:
    """Runs `work` on folder/request.json, writes folder/result.json, returns the result."""
    started = time.monotonic()
    request = Request.model_validate_json((folder / "request.json").read_bytes())
    if request.job != name or request.contract != CONTRACT_VERSION:
        raise SystemExit(
            f"request for job {request.job!r} contract {request.contract}; this is {name!r} {CONTRACT_VERSION}"
        )
    out = folder / "out"
    out.mkdir(exist_ok=True)
    job = Job(request, out)
    ending: dict[str, Any]
    try:
        work(job)
        ending = {"outcome": "ok", "exit_code": OK, "outputs": _outputs(out)}
    except Refused as refused:
        records = [RefusalRecord(**refusal.as_json()) for refusal in refused.refusals]
        ending = {
            "outcome": "refused",
            "exit_code": refused.exit_code,
            "refusals": records,
            "error": str(refused),
            "error_code": refused.code,
        }
    except MillError as error:
        ending = {"outcome": "failed", "exit_code": error.exit_code, "error": str(error), "error_code": error.code}
    except OSError as error:
        ending = {"outcome": "failed", "exit_code": 74, "error": str(error), "error_code": "io"}
    except Exception as error:
        traceback.print_exc()
        ending = {
            "outcome": "failed",
            "exit_code": INTERNAL,
            "error": f"{type(error).__name__}: {error}",
            "error_code": "internal",
        }
    job.durations["total_s"] = round(time.monotonic() - started, 3)
    result = Result(job=name, facts=job.facts, tools=job.tools, durations=job.durations, **ending)
    write_whole(folder / "result.json", result.model_dump_json(indent=1))
    return result


def main(name: str, work: Callable[[Job], None]) -> None:
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python -m jobs.{name} JOB_FOLDER")
    sys.exit(perform(name, work, Path(sys.argv[1])).exit_code)
