"""Route `gate`: FastFlowLM's DFlash and DFlash 2 packages. Judged check by check, and the report is published.

A row that names a donor, whose vocabulary the draft predicts in, gets the accepted package as a GGUF beside its report.
"""

from draftmill.catalogue.evidence import Evidence
from draftmill.hub.listing import Listing, Selection, select
from draftmill.store.manifest import Kind
from flows.order import Order
from flows.recipe import Recipe, gate_recipe
from flows.routes.route import Needs, Outcome, Setting, Subject, order_of
from flows.runners.runner import GIB, Runner

kind: Kind = "package"
selection: Selection = "package"
pairs = False


def order(subject: Subject, setting: Setting) -> Order:
    return order_of(subject, setting, tokenizer_from=subject.drafter.donor)


def recipe(subject: Subject, order: Order, donor: str | None) -> Recipe:
    _, left_aside = select(subject.files, selection, subject.repo)
    target = (order.tokenizer_from.partition("@")[0], donor) if order.tokenizer_from and donor else None
    return gate_recipe(order, order.name or subject.repo, subject.commit, left_aside, target)


def needs(listing: Listing, order: Order) -> Needs:
    """A GGUF may take F16 for what has 5 bits a weight in the package, and lies in the cache and in the store."""
    gguf = 2 * 4 * listing.size if order.tokenizer_from else 0
    return Needs(listing.size, listing.size + gguf + (64 << 20), GIB)


def run(subject: Subject, order: Order, evidence: Evidence | None, runner: Runner) -> Outcome:
    from flows.validate_package import validate  # Prefect is heavy, and a plan runs nothing

    ending = validate(order, runner)
    gate = ending.gate
    failing = [refusal for check in gate["checks"] for refusal in check.get("refusals", ())]
    return Outcome(
        verdict=gate["verdict"],
        sentence=gate["sentence"],
        refusals=tuple(failing),
        manifest=ending.manifest_key,
        places=ending.places,
        jobs=tuple(ending.jobs) if ending.kind != "already published" else (),
    )
