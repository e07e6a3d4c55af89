"""A plan: what a catalogue run would do for which drafter, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftmill.catalogue.evidence import Evidence
from draftmill.hub.listing import Listing
from draftmill.hub.ref import DEFAULT_REVISION
from draftmill.outcome import MillError
from flows.order import Order
from flows.recipe import Recipe
from flows.routes.route import Needs, Subject

GONE = "catalogue.gone"


@dataclass(frozen=True)
class Work:
    """What there is to do for a drafter that was looked at."""

    subject: Subject
    order: Order
    recipe: Recipe
    needs: Needs
    listing: Listing
    evidence: Evidence
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """A drafter that runs. reason: why; work: None where `problem` is how it ends without any. made_of: what the
    verdict rests on; seconds: from the jobs of earlier runs, None where there were none of its kind. listed: as in a
    `Standing`."""

    repo: str
    reason: str
    commit: str
    made_of: Mapping[str, str]
    work: Work | None = None
    problem: MillError | None = None
    seconds: float | None = None
    listed: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """As a `Standing` keeps them."""
        subject = self.work.subject if self.work else None
        return subject.files if subject and subject.drafter.revision != DEFAULT_REVISION else ()

    @property
    def family(self) -> str:
        return self.work.subject.family_name if self.work else ""

    @property
    def route(self) -> str:
        return self.work.subject.family.route if self.work else ""


@dataclass(frozen=True, slots=True)
class Skip:
    """A drafter of which nothing changed."""

    repo: str
    family: str
    verdict: str
    reason: str


@dataclass
class Plan:
    """unlisted: repositories with a family's name that the catalogue has no row of; they are among the items."""

    items: list[Item] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)

    @property
    def download(self) -> int:
        return sum(item.work.needs.download for item in self.items if item.work)

    @property
    def seconds(self) -> tuple[float, int]:
        """Of jobs one after the other; and of how many drafters it is not known."""
        return (
            sum(item.seconds or 0.0 for item in self.items),
            sum(item.seconds is None for item in self.items),
        )


def as_json(plan: Plan) -> dict[str, Any]:
    """For `draftmill catalogue plan --json`."""
    seconds, unknown = plan.seconds
    return {
        "run": [
            {
                "repo": item.repo,
                "family": item.family or None,
                "route": item.route or None,
                "reason": item.reason,
                "problem": item.problem and item.problem.code,
                "commit": item.commit,
                "download_bytes": item.work.needs.download if item.work else 0,
                "disk_bytes": item.work.needs.disk if item.work else 0,
                "memory_bytes": item.work.needs.memory if item.work else 0,
                "seconds": item.seconds,
                "remarks": list(item.work.remarks) if item.work else [],
            }
            for item in plan.items
        ],
        "skip": [{"repo": each.repo, "verdict": each.verdict, "reason": each.reason} for each in plan.skips],
        "without_a_row": plan.unlisted,
        "download_bytes": plan.download,
        "seconds": seconds,
        "seconds_unknown_for": unknown,
    }
