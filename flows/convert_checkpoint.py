"""One DFlash checkpoint, as upstream publishes them, into the store as a GGUF with its target's vocabulary.

resolve -> download -> intake -> convert -> publish (the GGUF, its account, the licences' texts)

`tokenizer_from` of the order is the target.
"""

from datetime import UTC, datetime

from draftmill.store.manifest import Manifest
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from draftmill.store.publish import describe, find
from flows.chain import Chain, Done, Step
from flows.conversion_steps import Listing, Steps
from flows.convert_model import ending_of, publish, run_chain, run_job
from flows.order import Ending, Order
from flows.package_conversion import Converted, convert_draft
from flows.publication import Publication, entry_name, results_of, source_of, tools_of
from flows.recipe import Recipe, ancestors_named, draft_recipe
from flows.runners.runner import Runner
from flows.signing import check_key, signed

CANNOT = "Drafts for no other target: it predicts from the hidden states of the one whose vocabulary it has."


def convert_checkpoint(order: Order, runner: Runner) -> Ending:
    """In the flow or task that calls it. Raises MillError or JobEnded when something broke."""
    return run_chain(order, runner, _convert)


def _convert(order: Order, chain: Chain, steps: Steps) -> Ending:
    def do(step: Step) -> Done:
        return run_job.with_options(task_run_name=step.title)(chain, step)

    assert order.tokenizer_from  # noqa: S101 - without a target there is nothing to do
    check_key()
    store = open_store(order.store)
    ready_store(store, order.work / "probes")
    listing: Listing = do(steps.resolve(order.ref, "draft")).facts["listing"]
    donor: Listing = do(steps.resolve(order.tokenizer_from, "tokenizer")).facts["listing"]
    entry = entry_name(order, listing)
    recipe = draft_recipe(order, listing["commit"], (donor["repo"], donor["commit"]))
    if found := find(store, "model", entry, listing["commit"], recipe.digest):
        return ending_of(order, chain, store, signed(store, found))
    draft = do(steps.download(order.ref, listing))
    do(steps.intake(order.ref, draft, "draft"))
    converted = convert_draft(order, entry, listing, donor, draft, recipe, steps, do)
    publication = _publication(order, entry, recipe, listing, draft, converted, chain)
    return ending_of(order, chain, store, publish(store, publication))


def _publication(
    order: Order, entry: str, recipe: Recipe, listing: Listing, draft: Done, converted: Converted, chain: Chain
) -> Publication:
    terms = converted.terms
    files = {file.path: converted.done.finished.out / file.path for file in converted.files} | terms.files
    manifest = Manifest(
        kind="model",
        entry=entry,
        recipe=recipe.digest,
        source=source_of(listing, draft, order.hub),
        donor=converted.donor,
        files=(*converted.files, *(describe(path, name, "licence") for name, path in terms.files.items())),
        tools=tools_of(chain.done),
        parameters=recipe.parameters | ancestors_named(order),
        job_keys={done.title: done.key for done in chain.done if done.key},
        job_results=results_of(chain.done),
        licence=terms.licence,
        lineage=terms.lineage,
        obligations=terms.obligations,
        notices=terms.notices,
        can=(converted.sentence("checkpoint"),),
        cannot=(CANNOT,),
        created=datetime.now(UTC),
    )
    return Publication(manifest, files)
