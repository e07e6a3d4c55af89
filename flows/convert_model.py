"""The flow `convert_model`: one drafter through the mill. A task is one job; publishing is the control plane's.

resolve -> download -> intake -> tokenizer (a donor's, where the repository has none) -> convert
        -> quantize -> check -> publish
"""

from collections.abc import Callable
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State

from draftmill.catalogue.donors import donor_of
from draftmill.gguf.mixes import MIXES
from draftmill.gguf.naming import gguf_name
from draftmill.gguf.quantize_native import unknown_type
from draftmill.outcome import MillError, Refused
from draftmill.store.index_publication import index_publication
from draftmill.store.interface import Store
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from draftmill.store.publish import Published, find
from draftmill.store.publish import publish as publish_to
from flows.cache import JobCache
from flows.catalogued import catalogued
from flows.chain import Chain, Done, JobEnded, Step
from flows.conversion_steps import Listing, Steps
from flows.display import DISPLAY, progress_of
from flows.licences import terms_of_order
from flows.lineage import trace_lineage
from flows.order import Ending, Order
from flows.publication import Publication, assemble, entry_name
from flows.recipe import ancestors_named, asked_for, conversion_recipe
from flows.runners.choice import make_runner
from flows.runners.runner import Runner
from flows.secrets import secret_files
from flows.signing import check_key, signed
from flows.stock_tools import StockTools

TOKENIZER = "tokenizer.json"


def _worth_retrying(_task: Any, _run: Any, state: State[Any]) -> bool:
    try:
        state.result()
    except JobEnded as ended:
        return ended.temporary
    except Exception:
        return False
    return False


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[5, 20],
    retry_condition_fn=_worth_retrying,
)
def run_job(chain: Chain, step: Step) -> Done:
    done = chain.run(step)
    get_run_logger().info("%s: %s (%s)", step.title, "from the cache" if done.from_cache else "ran", done.reason)
    return done


@task(cache_policy=NO_CACHE, persist_result=False)
def publish(store: Store, publication: Publication) -> Published:
    display = DISPLAY.get()
    title = f"publish {publication.manifest.entry}"
    display.started(title, "the last step")
    published = signed(store, publish_to(store, publication.files, publication.manifest, progress_of(display, title)))
    display.ended(title, "created" if published.created else "there already")
    return published


@task(cache_policy=NO_CACHE, persist_result=False)
def index(store: str, manifest_key: str) -> None:
    """A catalogue run does it once for all it published. Where the index cannot be changed the publication stands all
    the same, and `draftmill store index` finds it."""
    try:
        index_publication(open_store(store), manifest_key)
    except MillError as error:
        get_run_logger().warning("the index does not name this publication yet: %s", error)


@flow(name="convert_model", persist_result=False)
def convert_model(order: dict[str, Any]) -> State[Ending]:
    """`order` is an Order as JSON. The state's data is an `Ending`: a refusal completes, a failure raises."""
    given = catalogued(Order.model_validate(order))
    ending = convert(given, make_runner(given.runner))
    if ending.manifest_key:
        index(given.store, ending.manifest_key)
    create_markdown_artifact(ending.markdown(), key="conversion", description=given.ref)
    return Completed(name=ending.kind.capitalize(), message=ending.sentence, data=ending)


def convert(order: Order, runner: Runner) -> Ending:
    """One model, in the flow or task that calls it. Raises MillError or JobEnded when something broke."""
    return run_chain(order, runner, _convert)


def run_chain(order: Order, runner: Runner, work: Callable[[Order, Chain, Steps], Ending]) -> Ending:
    """`work`, whose refusals are endings. Raises MillError or JobEnded when something broke."""
    with secret_files() as secrets:
        chain = Chain(runner, JobCache(order.work))
        try:
            return work(order, chain, Steps(order, secrets, StockTools(order)))
        except JobEnded as ended:
            if ended.result.outcome != "refused":
                raise
            refusals = [refusal.model_dump() for refusal in ended.result.refusals]
            return _refused(order, chain, f"refused by {ended.title}", refusals)
        except Refused as refused:
            return _refused(order, chain, "refused", [refusal.as_json() for refusal in refused.refusals])


def _convert(order: Order, chain: Chain, steps: Steps) -> Ending:
    def do(step: Step) -> Done:
        return run_job.with_options(task_run_name=step.title)(chain, step)

    if order.quantizer == "native" and (unknown := [quant for quant in order.quants if quant not in MIXES]):
        raise Refused(*(unknown_type(quant) for quant in unknown))
    check_key()
    store = open_store(order.store)
    ready_store(store, order.work / "probes")
    listing: Listing = do(steps.resolve(order.ref, "model")).facts["listing"]
    donor_ref = _donor_of(order, listing)
    donor: Listing | None = do(steps.resolve(donor_ref, "tokenizer")).facts["listing"] if donor_ref else None
    parameters = asked_for(order) | ancestors_named(order)
    recipe = conversion_recipe(order, listing["commit"], (donor["repo"], donor["commit"]) if donor else None).digest
    entry = entry_name(order, listing)
    if found := find(store, "model", entry, listing["commit"], recipe):
        return ending_of(order, chain, store, signed(store, found))

    model = do(steps.download(order.ref, listing))
    weights = do(steps.intake(order.ref, model, "model")).facts["tensors"]["weights"]
    donor_files = None
    if donor_ref and donor:
        donor_files = do(steps.download(donor_ref, donor))
        do(steps.intake(donor_ref, donor_files, "donor"))
    tokenizer = do(steps.tokenizer(model, donor_files, listing, donor))
    encodings = list(dict.fromkeys([order.base, *order.quants]))
    names = {encoding: gguf_name(entry, weights, encoding) for encoding in encodings}
    lineage = trace_lineage(order, listing, donor, steps, do)
    borrowed = (donor, donor_files.finished.out) if donor and donor_files else None
    terms = terms_of_order(order, listing, lineage, model.finished.out, list(names.values()), borrowed)
    provenance = {
        "name": entry.partition("/")[2],
        "repo": listing["repo"],
        "commit": listing["commit"],
        "licence": terms.licence.id,
        "base_models": listing["base_models"],
        "recipe": recipe,
    }
    base = do(steps.convert(model, tokenizer, provenance, names[order.base]))
    products = [base, *(do(steps.quantize(base, quant, names[quant])) for quant in encodings[1:])]
    checks = [
        do(steps.check(encoding, model, tokenizer, base, product))
        for encoding, product in zip(encodings, products, strict=True)
    ]
    publication = assemble(
        order=order,
        listing=listing,
        donor=donor,
        donor_files=donor_files,
        recipe=recipe,
        parameters=parameters,
        terms=terms,
        model=model,
        tokenizer=tokenizer,
        products=products,
        checks=checks,
        jobs=chain.done,
    )
    return ending_of(order, chain, store, publish(store, publication))


def _donor_of(order: Order, listing: Listing) -> str | None:
    """The order's donor; else, for a repository that ships no tokenizer, the catalogue's."""
    if order.tokenizer_from or any(file["path"] == TOKENIZER for file in listing["files"]):
        return order.tokenizer_from
    if order.catalogue and listing["repo"]:
        return donor_of(listing["repo"], order.catalogue)
    return None


def _refused(order: Order, chain: Chain, sentence: str, refusals: list[dict[str, Any]]) -> Ending:
    return Ending(kind="refused", ref=order.ref, sentence=sentence, refusals=refusals, jobs=chain.account())


def ending_of(order: Order, chain: Chain, store: Store, published: Published) -> Ending:
    """Of a publication, new or found."""
    manifest = published.manifest
    if published.created:
        sentence = f"published {len(manifest.files)} files and their manifest"
    else:
        sentence = (
            f"nothing to do: recipe {manifest.recipe[:8]} is published already, {manifest.created:%Y-%m-%d %H:%M} UTC"
        )
    return Ending(
        kind="published" if published.created else "already published",
        ref=order.ref,
        sentence=sentence,
        manifest_at=published.where,
        manifest_key=manifest.key,
        manifest=manifest.model_dump(mode="json"),
        places={file.path: store.where(manifest.key_of(file.path)) for file in manifest.files},
        jobs=chain.account(),
    )
