"""Route `gguf`: PARD. Converted with the repository's own tokenizer, quantized, checked, published."""

from draftmill.catalogue.evidence import Evidence
from draftmill.hub.listing import Listing, Selection
from draftmill.store.manifest import Kind, Manifest
from flows.order import DEFAULT_QUANTS, Order
from flows.recipe import Recipe, conversion_recipe
from flows.routes.route import Needs, Outcome, Setting, Subject, order_of, size_of
from flows.runners.runner import GIB, Runner

kind: Kind = "model"
selection: Selection = "model"
pairs = True

# Bytes of an encoding over those of 16-bit weights, from bits a weight, rounded up.
_SHARES = {"F32": 2.0, "F16": 1.0, "BF16": 1.0, "Q8_0": 0.54, "Q6_K": 0.45, "Q5_K_M": 0.42, "Q4_K_M": 0.36}
_OTHER = 1.0
_TOKENIZER = 32 << 20


def order(subject: Subject, setting: Setting) -> Order:
    return order_of(subject, setting, quants=subject.drafter.quants or subject.family.quants or DEFAULT_QUANTS)


def recipe(subject: Subject, order: Order, donor: str | None) -> Recipe:
    borrowed = (order.tokenizer_from.partition("@")[0], donor) if order.tokenizer_from and donor else None
    return conversion_recipe(order, subject.commit, borrowed)


def needs(listing: Listing, order: Order) -> Needs:
    """The published copy may lie on the same disk. The check of a product loads it whole and generates with it."""
    weights = size_of(listing, [".safetensors"])
    products = sum(weights * _SHARES.get(encoding, _OTHER) for encoding in {order.base, *order.quants})
    base = weights * _SHARES[order.base]
    return Needs(listing.size, int(listing.size + 2 * products) + 2 * _TOKENIZER, int(GIB + 1.25 * base))


def run(subject: Subject, order: Order, evidence: Evidence | None, runner: Runner) -> Outcome:
    from flows.convert_model import convert  # Prefect is heavy, and a plan runs nothing

    ending = convert(order, runner)
    return Outcome(
        verdict="refused" if ending.kind == "refused" else "pass",
        sentence=ending.refusals[0]["sentence"] if ending.kind == "refused" else ending.sentence,
        refusals=tuple(ending.refusals),
        manifest=Manifest.model_validate(ending.manifest).key if ending.manifest else None,
        places=ending.places,
        jobs=tuple(ending.jobs) if ending.kind != "already published" else (),
    )
