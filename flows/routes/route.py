"""What a route is: a module of this package that has what `Route` says. A new family is a new module and a rule."""

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import flows.routes
from draftmill.catalogue.evidence import Evidence
from draftmill.catalogue.schema import Drafter, Family
from draftmill.hub.listing import Listing, Selection
from draftmill.store.manifest import Kind
from flows.order import Order
from flows.recipe import Recipe
from flows.runners.runner import Runner

Verdict = Literal["pass", "refused", "no verdict", "failed"]


@dataclass(frozen=True)
class Subject:
    """A drafter as a route gets it. `files`: names in the repository; commit: what the hub has now."""

    repo: str
    commit: str
    files: tuple[str, ...]
    family_name: str
    family: Family
    drafter: Drafter


@dataclass(frozen=True)
class Setting:
    """Where things are found, the same for every drafter of a run. licences: as `Catalogue.licences`."""

    hub: str
    store: str
    work: Path
    runner: Literal["process", "docker"] = "process"
    licences: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)


def order_of(subject: Subject, setting: Setting, **own: Any) -> Order:
    """What a row says and a run sets, as every route orders it. own: fields of this route."""
    drafter = subject.drafter
    return Order(
        ref=f"{subject.repo}@{subject.commit}",
        name=drafter.publish_as,
        licence=drafter.licence_as,
        licence_statement=drafter.licence_statement,
        licence_files=drafter.licence_files,
        licence_texts=dict(setting.licences),
        derived_from=drafter.derived_from,
        trained_for=drafter.trained_for,
        upstream=drafter.upstream,
        converter=drafter.converter,
        hub=setting.hub,
        store=setting.store,
        work=setting.work,
        runner=setting.runner,
        catalogue=None,  # the row is here already
        **own,
    )


@dataclass(frozen=True)
class Needs:
    """Bytes: that come over the network, that a run takes on the disk, and of memory at its largest moment."""

    download: int = 0
    disk: int = 0
    memory: int = 0


@dataclass(frozen=True)
class Outcome:
    """How it ended. refusals: as `Refusal.as_json`, in a catalogue's reason with source and would_change. manifest: the
    key of the publication, None when nothing was published. jobs: as `Chain.account` gives them, none where it was
    published before."""

    verdict: Verdict
    sentence: str
    refusals: tuple[dict[str, Any], ...] = ()
    manifest: str | None = None
    places: dict[str, str] = field(default_factory=dict)
    jobs: tuple[dict[str, Any], ...] = ()


class Route(Protocol):
    """kind: of what is published; selection: which files of the repository it takes; pairs: whether what it publishes
    has a vocabulary of its own, by which targets are found."""

    kind: Kind
    selection: Selection
    pairs: bool

    def order(self, subject: Subject, setting: Setting) -> Order:
        """What will be done. Raises Refused where the catalogue does not say all that is needed."""

    def recipe(self, subject: Subject, order: Order, donor: str | None) -> Recipe:
        """donor: the commit of the order's donor."""

    def needs(self, listing: Listing, order: Order) -> Needs: ...

    def run(self, subject: Subject, order: Order, evidence: Evidence | None, runner: Runner) -> Outcome:
        """In the flow or task that calls it. Raises MillError when something broke; a refusal is an outcome."""


def routes() -> tuple[str, ...]:
    """The names of all routes."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(flows.routes.__path__) if m.name != "route"))


@cache
def find_route(name: str) -> Route:
    """The route of a name in `routes()`."""
    module: Any = import_module(f"flows.routes.{name}")
    route: Route = module
    return route


def unpinned_donor(order: Order, commit: str | None) -> tuple[str, ...]:
    """A remark where the order's donor is a branch or tag, which this run takes at `commit`."""
    if order.tokenizer_from is None or commit is None or order.tokenizer_from.endswith(f"@{commit}"):
        return ()
    return (
        f"The donor {order.tokenizer_from} is not pinned: this run takes it at {commit}, as the manifest will say, and "
        "a later one at another commit publishes anew. To keep this one, put it into the row.",
    )


def size_of(listing: Listing, suffixes: Iterable[str]) -> int:
    return sum(file.size for file in listing.files if file.path.endswith(tuple(suffixes)))
