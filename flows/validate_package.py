"""The flow `validate_package`: one draft package through the gate, and the report into the store.

resolve -> download -> gate -> (run on a target) -> publish (gate.json, report.html, the licence files; none of the
package's weights)

Where the order names the target (`tokenizer_from`), an accepted package is converted and its GGUF published as well.
A refused package's report is published like a passing one's; where there is no verdict nothing is.
"""

import json
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.states import Completed, State
from pydantic import BaseModel, ConfigDict

from draftmill.licences.terms import is_agreement, is_carried, terms_of
from draftmill.reports.gate_files import JSON, write_gate
from draftmill.store.interface import Store
from draftmill.store.manifest import Licence, Manifest, Role, Source, Tool
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from draftmill.store.publish import Published, describe, find
from draftmill.store.reading import get
from flows.cache import JobCache
from flows.chain import Chain, Done, Input, JobEnded, Step
from flows.conversion_steps import Listing, Steps
from flows.convert_model import index, publish, run_job
from flows.lineage import trace_lineage
from flows.order import Order
from flows.package_conversion import Converted, convert_package
from flows.package_run import run_package
from flows.publication import Publication, entry_name, results_of, source_of, tools_of
from flows.recipe import Recipe, ancestors_named, gate_recipe
from flows.runners.choice import make_runner
from flows.runners.runner import GIB, Limits, Runner
from flows.secrets import secret_files
from flows.signing import check_key, signed
from flows.stock_tools import StockTools
from jobs.contract import Result

NO_VERDICT = "gate.no_verdict"
STATEMENT = "What is published is a report about the package, and not the package."
LIMITS = Limits(memory_bytes=1 * GIB, timeout_s=1800)


class Validation(BaseModel):
    """How it ended. gate: the content of gate.json. places: path -> where it is, empty when nothing was published."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["published", "already published", "no verdict"]
    ref: str
    gate: dict[str, Any]
    manifest_at: str | None = None
    manifest_key: str | None = None
    places: dict[str, str] = {}
    jobs: list[dict[str, Any]] = []

    @property
    def sentence(self) -> str:
        return f"{self.gate['verdict']}: {self.gate['sentence']} ({self.kind})"

    def markdown(self) -> str:
        """For the Prefect UI."""
        failing = [check for check in self.gate["checks"] if check["verdict"] in ("refused", "undetermined")]
        lines = [f"# {self.ref}: {self.gate['verdict']}", "", self.sentence, ""]
        lines += [f"* **{check['title']}** ({check['verdict']}): {check['evidence']}" for check in failing]
        lines += [f"* `{name}`: {place}" for name, place in self.places.items()]
        return "\n".join(lines)


@flow(name="validate_package", persist_result=False)
def validate_package(order: dict[str, Any]) -> State[Validation]:
    """`order` is an Order as JSON; `tokenizer_from` names the target whose vocabulary the package's GGUF carries, and
    without it none is made. The state's data is a `Validation`: a refused package completes, a failure raises."""
    given = Order.model_validate(order)
    ending = validate(given, make_runner(given.runner))
    if ending.manifest_key:
        index(given.store, ending.manifest_key)
    create_markdown_artifact(ending.markdown(), key="validation", description=given.ref)
    return Completed(name=ending.gate["verdict"].capitalize(), message=ending.sentence, data=ending)


def validate(order: Order, runner: Runner) -> Validation:
    """One package, in the flow or task that calls it. Raises MillError or JobEnded when something broke."""
    with secret_files() as secrets:
        chain = Chain(runner, JobCache(order.work))
        ending = _validate(order, chain, Steps(order, secrets, StockTools(order)))
    return ending.model_copy(update={"jobs": chain.account()})


def _validate(order: Order, chain: Chain, steps: Steps) -> Validation:
    def do(step: Step) -> Done:
        return run_job.with_options(task_run_name=step.title)(chain, step)

    check_key()
    store = open_store(order.store)
    ready_store(store, order.work / "probes")
    listing: Listing = do(steps.resolve(order.ref, "package")).facts["listing"]
    donor: Listing | None = None
    if order.tokenizer_from:
        donor = do(steps.resolve(order.tokenizer_from, "tokenizer")).facts["listing"]
    entry = entry_name(order, listing)
    whose = (donor["repo"], donor["commit"]) if donor else None
    recipe = gate_recipe(order, entry, listing["commit"], listing["not_taken"], whose)
    if found := find(store, "package", entry, listing["commit"], recipe.digest):
        return _ended(order, store, signed(store, found))
    package = do(steps.download(order.ref, listing))
    parameters = {"title": entry, "left_aside": listing["not_taken"]}
    step = Step(
        "gate", f"gate {order.ref}", order.ref, parameters, {"package": Input.of(package.finished)}, limits=LIMITS
    )
    try:
        result = do(step).finished.result
    except JobEnded as ended:
        result = ended.result
        if result.error_code == NO_VERDICT:
            return Validation(kind="no verdict", ref=order.ref, gate=result.facts["gate"])
        if result.outcome != "refused":
            raise
    gate, ran = result.facts["gate"], None
    if order.run is not None:
        gate, ran = run_package(order, entry, gate, package)
        if gate["verdict"] == "no verdict":
            return Validation(kind="no verdict", ref=order.ref, gate=gate)
    converted: Converted | str | None = None
    if donor and result.outcome == "ok":
        converted = convert_package(order, entry, listing, donor, package, recipe, steps, do)
    with tempfile.TemporaryDirectory(prefix="draftmill-report-") as place:
        write_gate(Path(place), gate, entry)
        keys = {done.title: done.key for done in chain.done if done.key} | {step.title: chain.key(step).digest}
        results = results_of(chain.done)
        files = {path.name: path for path in sorted(Path(place).iterdir())}
        report = frozenset(files)
        files |= {path: package.finished.out / path for path in _carried(listing)}
        if isinstance(converted, Converted):
            files |= converted.terms.files
            files |= {file.path: converted.done.finished.out / file.path for file in converted.files}
        source = source_of(listing, package, order.hub)
        of_jobs = tuple(each for each in (result, ran) if each)
        manifest = _manifest(order, entry, recipe, source, listing, files, report, of_jobs, gate["sentence"])
        manifest = manifest.model_copy(update={"job_keys": keys, "job_results": results})
        return _ended(order, store, publish(store, Publication(_with(manifest, converted), files)))


def _carried(listing: Listing) -> Iterable[str]:
    return (file["path"] for file in listing["files"] if is_carried(file["path"]))


def _manifest(
    order: Order,
    entry: str,
    recipe: Recipe,
    source: Source,
    listing: Listing,
    files: dict[str, Path],
    report: frozenset[str],
    of_jobs: tuple[Result, ...],
    sentence: str,
) -> Manifest:
    """Of the report alone, whose files `report` names."""
    known = terms_of(listing["licence"])
    text = next((path for path in sorted(_carried(listing)) if is_agreement(path)), None)
    roles: dict[str, Role] = dict.fromkeys(report, "evidence")
    tools = [Tool(name=tool.name, version=tool.version, digest=tool.digest) for each in of_jobs for tool in each.tools]
    return Manifest(
        kind="package",
        entry=entry,
        recipe=recipe.digest,
        source=source,
        files=tuple(describe(path, name, roles.get(name, "licence")) for name, path in files.items()),
        tools=tuple(dict.fromkeys(tools)),
        parameters=recipe.parameters | ancestors_named(order),
        job_keys={},
        licence=Licence(id=known.id if known else listing["licence"], text=text, statement=STATEMENT),
        lineage=trace_lineage(order, listing, None, None, None),
        notices=(known.display,) if known and known.display else (),
        can=(f"Says of the package: {sentence}.",),
        cannot=("Holds no weights: take the package from its source, at the commit that is named here.",),
        created=datetime.now(UTC),
    )


def _with(manifest: Manifest, converted: Converted | str | None) -> Manifest:
    """The report's manifest with what became of the conversion."""
    if converted is None:
        return manifest
    if isinstance(converted, str):
        return manifest.model_copy(update={"cannot": (*manifest.cannot, converted)})
    terms = converted.terms
    own = {file.path: file for file in converted.files}
    return manifest.model_copy(
        update={
            "files": tuple(own.get(file.path, file) for file in manifest.files),
            "donor": converted.donor,
            "tools": tuple(dict.fromkeys([*manifest.tools, *tools_of([converted.done])])),
            "licence": terms.licence,
            "lineage": terms.lineage,
            "obligations": terms.obligations,
            "notices": terms.notices,
            "can": (*manifest.can, converted.sentence("package")),
            "cannot": ("Holds not the package itself: take it from its source, at the commit that is named here.",),
        }
    )


def _ended(order: Order, store: Store, published: Published) -> Validation:
    manifest = published.manifest
    return Validation(
        kind="published" if published.created else "already published",
        ref=order.ref,
        gate=json.loads(get(store, manifest.key_of(JSON))),
        manifest_at=published.where,
        manifest_key=manifest.key,
        places={file.path: store.where(manifest.key_of(file.path)) for file in manifest.files},
    )
