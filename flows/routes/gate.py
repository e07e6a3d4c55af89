"""Route `gate`: FastFlowLM's DFlash and DFlash 2 packages. Judged check by check, and the report is published."""

from draftmill.catalogue.evidence import Evidence
from draftmill.hub.listing import Listing, Selection, select
from draftmill.store.manifest import Kind
from flows.order import Order
from flows.recipe import Recipe, gate_recipe
from flows.routes.route import Needs, Outcome, Setting, Subject, manifest_key
from flows.runners.runner import GIB, Runner

kind: Kind = "package"
selection: Selection = "package"
pairs = False


def order(subject: Subject, setting: Setting) -> Order:
    return Order(
        ref=f"{subject.repo}@{subject.commit}",
        name=subject.drafter.publish_as,
        derived_from=subject.drafter.derived_from,
        trained_for=subject.drafter.trained_for,
        upstream=subject.drafter.upstream,
        hub=setting.hub,
        store=setting.store,
        work=setting.work,
        runner=setting.runner,
    )


def recipe(subject: Subject, order: Order, donor: str | None) -> Recipe:
    _, left_aside = select(subject.files, selection, subject.repo)
    return gate_recipe(order.name or subject.repo, subject.commit, left_aside)


def needs(listing: Listing, order: Order) -> Needs:
    return Needs(listing.size, listing.size + (64 << 20), GIB)


def run(subject: Subject, order: Order, evidence: Evidence | None, runner: Runner) -> Outcome:
    from flows.validate_package import validate  # Prefect is heavy, and a plan runs nothing

    ending = validate(order, runner)
    gate = ending.gate
    key = manifest_key(kind, order.name or subject.repo, recipe(subject, order, None))
    failing = [refusal for check in gate["checks"] for refusal in check.get("refusals", ())]
    return Outcome(
        verdict=gate["verdict"],
        sentence=gate["sentence"],
        refusals=tuple(failing),
        manifest=key if ending.places else None,
        places=ending.places,
        jobs=tuple(ending.jobs) if ending.kind != "already published" else (),
    )
