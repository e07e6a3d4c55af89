"""Route `dflash`: upstream's DFlash checkpoints. Converted to a GGUF with the vocabulary of the target, and published.

The target is the row's donor. A row without one is refused, as is what the job refuses; each refusal says what would
change that.
"""

from typing import Any

from draftmill.catalogue.evidence import Evidence
from draftmill.gguf.hyperparameters import ARCHITECTURES
from draftmill.hub.listing import Listing, Selection
from draftmill.store.manifest import Kind, Manifest
from flows.order import Order
from flows.recipe import Recipe, draft_recipe
from flows.routes.gate import order
from flows.routes.route import Needs, Outcome, Subject
from flows.runners.runner import GIB, Runner

__all__ = ["kind", "needs", "order", "pairs", "recipe", "run", "selection"]

kind: Kind = "model"
selection: Selection = "draft"
pairs = False

_TOKENIZER = 32 << 20
_NO_DONOR = (
    "A draft predicts in its target's vocabulary, which a GGUF has to carry, and the row does not say which target "
    "that is. Add the one that its card names, at a commit."
)
_NAME_TARGET = (
    "donor: owner/target@commit in the row; without a row, draftmill dflash convert FOLDER OUT.gguf --to gguf --target "
    "TARGET"
)
_CONVERSION = "the conversion of the checkpoint with the files of the row's donor"
_OTHER_TARGET = "the target that the draft was trained for as donor of the row"
_WRITTEN_TARGET = (
    f"converter: stock in the row, or a target whose vocabulary the native one writes ({', '.join(ARCHITECTURES)})"
)
_WOULD_CHANGE = {
    "dflash.target_architecture": _WRITTEN_TARGET,
    "dflash.target_": _OTHER_TARGET,
    "dflash.vocabulary_": _OTHER_TARGET,
}
"""How a refusal's code begins -> what to look at again, the first that fits. The sentences of all others say what to
do."""


def recipe(subject: Subject, order: Order, donor: str | None) -> Recipe:
    target = (order.tokenizer_from.partition("@")[0], donor) if order.tokenizer_from and donor else None
    return draft_recipe(order, subject.commit, target)


def needs(listing: Listing, order: Order) -> Needs:
    """The GGUF holds the weights as they are, and lies in the cache and in the store."""
    if order.tokenizer_from is None:
        return Needs()
    return Needs(listing.size, 3 * listing.size + 3 * _TOKENIZER, GIB)


def run(subject: Subject, order: Order, evidence: Evidence | None, runner: Runner) -> Outcome:
    if order.tokenizer_from is None:
        return Outcome("refused", _NO_DONOR, (_no_donor(subject),))
    from flows.convert_checkpoint import convert_checkpoint  # Prefect is heavy, and a plan runs nothing

    ending = convert_checkpoint(order, runner)
    return Outcome(
        verdict="refused" if ending.kind == "refused" else "pass",
        sentence=ending.refusals[0]["sentence"] if ending.kind == "refused" else ending.sentence,
        refusals=tuple(_with_change(refusal) for refusal in ending.refusals),
        manifest=Manifest.model_validate(ending.manifest).key if ending.manifest else None,
        places=ending.places,
        jobs=tuple(ending.jobs) if ending.kind != "already published" else (),
    )


def _no_donor(subject: Subject) -> dict[str, Any]:
    return {
        "code": "catalogue.no_donor",
        "where": f"drafters.{subject.repo}.donor",
        "measured": None,
        "expected": "owner/repo@revision",
        "sentence": _NO_DONOR,
        "source": "the catalogue",
        "would_change": _NAME_TARGET,
    }


def _with_change(refusal: dict[str, Any]) -> dict[str, Any]:
    change = next((change for code, change in _WOULD_CHANGE.items() if refusal["code"].startswith(code)), None)
    return refusal | {"source": _CONVERSION, "would_change": change} if change else refusal
