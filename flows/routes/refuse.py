"""Route `refuse`: a family that is not run, for reasons that the catalogue states and every run measures again.

Each refusal names its fact's source and what would change the verdict. Where a premise no longer holds there is no
verdict: somebody has to look at the family again.
"""

from typing import Any

from draftmill.catalogue.classify import config_value, holds
from draftmill.catalogue.evidence import Evidence
from draftmill.catalogue.schema import Reason
from draftmill.hub.listing import Listing, Selection
from draftmill.store.manifest import Kind
from flows.order import Order
from flows.recipe import Recipe
from flows.routes.route import Needs, Outcome, Setting, Subject
from flows.runners.runner import Runner

kind: Kind = "model"
selection: Selection = "model"
pairs = False


def order(subject: Subject, setting: Setting) -> Order:
    return Order(ref=f"{subject.repo}@{subject.commit}", hub=setting.hub, store=setting.store, work=setting.work)


def recipe(subject: Subject, order: Order, donor: str | None) -> Recipe:
    reasons = [reason.model_dump(mode="json") for reason in subject.family.reasons]
    return Recipe(subject.commit, {"reasons": reasons}, ())


def needs(listing: Listing, order: Order) -> Needs:
    """Names and config.json are all that is looked at."""
    return Needs()


def run(subject: Subject, order: Order, evidence: Evidence | None, runner: Runner) -> Outcome:
    assert evidence is not None  # noqa: S101 - what is run was looked at
    reasons = subject.family.reasons
    gone = [reason for reason in reasons if reason.when and not holds(reason.when, evidence)]
    if gone:
        codes = ", ".join(reason.code for reason in gone)
        sentence = (
            f"{subject.family_name} was refused for {codes}, which no longer holds at this commit. Look at the family "
            "again: it may need another route, or other reasons."
        )
        return Outcome("no verdict", sentence, tuple(_refusal(subject, reason, evidence) for reason in gone))
    refusals = tuple(_refusal(subject, reason, evidence) for reason in reasons)
    return Outcome("refused", reasons[0].sentence, refusals)


def _refusal(subject: Subject, reason: Reason, evidence: Evidence) -> dict[str, Any]:
    return {
        "code": reason.code,
        "where": f"{subject.repo}@{subject.commit[:12]}",
        "measured": _measured(reason, evidence),
        "expected": reason.expected,
        "sentence": reason.sentence,
        "source": reason.source,
        "would_change": reason.would_change,
    }


def _measured(reason: Reason, evidence: Evidence) -> Any:
    """What the repository has of all that the premise looks at."""
    if reason.when is None:
        return reason.measured
    sign = reason.when
    measured: dict[str, Any] = {pattern: evidence.named(pattern) for pattern in (*sign.files, *sign.without)}
    return measured | {place: config_value(evidence.config or {}, place) for place in sign.config}
