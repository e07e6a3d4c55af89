"""A chain of jobs over one model: runs each through the cache, and ends in a way a person can read.

`Chain.run` is what the tasks of a flow call. Nothing here knows Prefect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.outcome import MillError
from flows.cache import Finished, JobCache, JobKey, digest_of
from flows.display import DISPLAY
from flows.runners.runner import Limits, Runner
from jobs.contract import Result

TEMPORARY = 75
DEFAULT_LIMITS = Limits()


class JobEnded(MillError):
    """A job that did not end well. `result` says how; `title` says which."""

    def __init__(self, title: str, result: Result) -> None:
        super().__init__(f"{title}: {result.error or result.outcome}", code=result.error_code or "", where=title)
        self.title = title
        self.result = result

    @property
    def temporary(self) -> bool:
        return self.result.outcome == "failed" and self.result.exit_code == TEMPORARY


@dataclass(frozen=True)
class Input:
    """A folder given to a job. Without a digest it is not in the job key: what is read from it is pinned elsewhere."""

    folder: Path
    digest: str | None

    @classmethod
    def of(cls, finished: Finished) -> "Input":
        return cls(finished.out, digest_of(finished.result.outputs))


@dataclass(frozen=True)
class Step:
    """One job to do. `locators` are parameters that say where a thing is found, never what it is: not in the key."""

    job: str
    title: str
    subject: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)
    locators: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    secrets: Mapping[str, Path] = field(default_factory=dict)
    cached: bool = True


@dataclass(frozen=True)
class Done:
    """A job that ended well, and whether the cache had it."""

    title: str
    key: str
    finished: Finished
    from_cache: bool
    reason: str

    @property
    def facts(self) -> dict[str, Any]:
        return self.finished.result.facts


@dataclass
class Chain:
    runner: Runner
    cache: JobCache
    done: list[Done] = field(default_factory=list)

    def key(self, step: Step) -> JobKey:
        return JobKey(
            job=step.job,
            code=self.runner.code_digest(step.job, dict(step.parameters)),
            parameters=dict(step.parameters),
            inputs={slot: given.digest for slot, given in step.inputs.items() if given.digest},
        )

    def run(self, step: Step) -> Done:
        """Raises JobEnded when the job refuses or fails."""
        key = self.key(step)
        display = DISPLAY.get()
        done = self._cached(step, key)
        if done is None:
            reason = self.cache.why_missed(key, step.subject) if step.cached else "done anew each time"
            with self.cache.claim(key) as folder:
                # Another run may have finished it while this one waited for the lock.
                done = self._cached(step, key)
                if done is None:
                    display.started(step.title, reason)
                    inputs = {slot: given.folder.resolve() for slot, given in step.inputs.items()}
                    with self.cache.reading(inputs.values()):
                        result = self.runner.run(
                            step.job,
                            folder,
                            inputs=inputs,
                            parameters={**step.parameters, **step.locators},
                            secrets=dict(step.secrets),
                            limits=step.limits,
                            events=lambda event: display.event(step.title, event),
                        )
                    display.ended(step.title, result.outcome)
                    if result.outcome != "ok":
                        self.cache.drop(folder, result)
                        raise JobEnded(step.title, result)
                    done = Done(
                        step.title, key.digest, self.cache.keep(key, folder, result, step.subject), False, reason
                    )
        if done.from_cache:
            display.skipped(step.title, done.reason)
        self.done.append(done)
        return done

    def account(self) -> list[dict[str, Any]]:
        """What each job was about, whether it ran, and the seconds it took when it did."""
        return [
            {
                "title": done.title,
                "cached": done.from_cache,
                "reason": done.reason,
                "seconds": done.finished.result.durations.get("total_s", 0.0),
            }
            for done in self.done
        ]

    def _cached(self, step: Step, key: JobKey) -> Done | None:
        found = self.cache.find(key) if step.cached else None
        return Done(step.title, key.digest, found, True, "finished before with the same key") if found else None
