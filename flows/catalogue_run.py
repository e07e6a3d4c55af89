"""The flow `catalogue_run`: every drafter of the catalogue, and of them only what changed.

plan -> a task a drafter, several at once, each with room for it -> index.json, what is known, the summary

One drafter's failure is one row. Scheduled by cron, or on demand by `run_deployment`; cancelled, it ends the jobs that
run and leaves what was finished in the store.
"""

import hashlib
import json
import secrets
import threading
import time
from datetime import UTC, datetime
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.states import Completed, State
from prefect.task_runners import ThreadPoolTaskRunner

from draftmill.catalogue.catalogue import Catalogue, load_catalogue
from draftmill.catalogue.standing import Standing, update_standings
from draftmill.outcome import MillError, Refused, Temporary
from draftmill.store.interface import Store
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from flows.budget import Budget, available_memory, free_disk
from flows.cache import JobCache
from flows.catalogue_index import index_returned, index_rows
from flows.catalogue_order import CatalogueOrder
from flows.catalogue_pairs import Paired, Targets, find_pairs, unjudged
from flows.catalogue_plan import Item, Plan
from flows.catalogue_planner import make_plan
from flows.catalogue_summary import RunRow, Summary
from flows.chain import Chain, JobEnded
from flows.conversion_steps import Steps
from flows.display import DISPLAY
from flows.routes.route import Outcome, find_route
from flows.runners.choice import make_runner
from flows.secrets import secret_files
from flows.stock_tools import StockTools

FLUSH_S = 5.0
"""How often what is known is written while drafters end one after the other."""


class Bench:
    """What the drafters of a run share. Not a value, so that Prefect does not walk through it."""

    def __init__(self, order: CatalogueOrder, catalogue: Catalogue, store: Store, items: list[Item]) -> None:
        self.order = order
        self.store = store
        self.items = {item.repo: item for item in items}
        self.runner = make_runner(order.runner)
        self.targets = Targets(catalogue.targets)
        self.budget = Budget(
            order.memory_bytes or available_memory(),
            order.disk_bytes or free_disk(order.work),
            lambda: free_disk(order.work),
        )
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()
        self.runner.stop()


@flow(name="catalogue_run", persist_result=False)
def catalogue_run(order: dict[str, Any]) -> State[Summary]:
    """`order` is a CatalogueOrder as JSON. The state's data is a `Summary`, also when drafters failed."""
    given = CatalogueOrder.model_validate(order)
    run = given.run or new_run()
    started = _now()
    store = open_store(given.store)
    ready_store(store, given.work / "probes")
    catalogue = load_catalogue(given.catalogue)
    plan = make_plan(given, catalogue, store)
    get_run_logger().info("%d to run, %d unchanged", len(plan.items), len(plan.skips))
    index_returned(store, (skip.repo for skip in plan.skips), catalogue)
    rows = _run(given, catalogue, store, plan, run) if plan.items else []
    skipped = [
        RunRow(repo=s.repo, family=s.family or None, route=None, verdict=s.verdict, ran=False, reason=s.reason)  # type: ignore[arg-type]
        for s in plan.skips
    ]
    summary = Summary(
        run=run,
        started=started,
        ended=_now(),
        hub=given.hub,
        only=given.only,
        rows=tuple(sorted([*rows, *skipped], key=lambda row: row.repo)),
        unlisted=tuple(plan.unlisted),
    )
    summary = publish_summary(store, summary)
    create_table_artifact(summary.table(), key="catalogue-table", description=summary.sentence)
    create_markdown_artifact(summary.markdown(), key="catalogue", description=summary.sentence)
    return Completed(message=summary.sentence, data=summary)


def new_run() -> str:
    """A run's id: it sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


@task(cache_policy=NO_CACHE, persist_result=False)
def take(bench: Bench, repo: str) -> RunRow:
    """One drafter by its route. Raises MillError when something broke."""
    item = bench.items[repo]
    if bench.stopped.is_set():
        raise Temporary("The run was stopped before this drafter's turn.", code="catalogue.stopped", where=repo)
    if item.problem:
        raise item.problem
    assert item.work  # noqa: S101 - or it had a problem
    subject, order = item.work.subject, item.work.order
    route = find_route(subject.family.route)
    with bench.budget.room(item.work.needs, repo):
        outcome = route.run(subject, order, item.work.evidence, bench.runner)
        paired = _pairs(bench, item, outcome) if route.pairs and outcome.manifest else Paired()
    first = outcome.refusals[0] if outcome.refusals else None
    return _row(
        item,
        verdict=outcome.verdict,
        sentence=outcome.sentence,
        code=first["code"] if first and outcome.verdict != "pass" else None,
        refusals=outcome.refusals,
        manifest=outcome.manifest,
        places=outcome.places,
        pairs=paired.pairs,
        not_judged=dict(paired.not_judged),
        unreached=paired.unreached,
        download_bytes=item.work.needs.download,
        job_seconds=round(sum(job["seconds"] for job in outcome.jobs), 3),
    )


def _pairs(bench: Bench, item: Item, outcome: Outcome) -> Paired:
    """A published draft stays published where its pairs cannot be judged; that is said instead."""
    assert item.work and outcome.manifest  # noqa: S101
    order = item.work.order
    try:
        with secret_files() as files:
            chain = Chain(bench.runner, JobCache(order.work))
            steps = Steps(order, files, StockTools(order))
            trained_for = item.work.subject.drafter.trained_for
            return find_pairs(bench.store, outcome.manifest, bench.targets, trained_for, chain, steps)
    except MillError as error:
        return unjudged({"every target": error})


def _run(order: CatalogueOrder, catalogue: Catalogue, store: Store, plan: Plan, run: str) -> list[RunRow]:
    bench = Bench(order, catalogue, store, plan.items)
    display = DISPLAY.get()
    rows: list[RunRow] = []
    waiting: list[RunRow] = []
    flushed = time.monotonic()
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=order.max_parallel)
    with runner as pool:
        futures = {
            pool.submit(take.with_options(task_run_name=item.repo), {"bench": bench, "repo": item.repo}): item
            for item in plan.items
        }
        try:
            for done, future in enumerate(as_completed(list(futures)), 1):
                future.wait()  # done it is; this reads how
                row = _row_of(futures[future], future.state)  # type: ignore[index]
                rows.append(row)
                waiting.append(row)
                display.event("plan", {"event": "progress", "what": "drafters", "done": done, "total": len(futures)})
                if time.monotonic() - flushed > FLUSH_S or done == len(futures):
                    _keep(bench, catalogue, waiting, run)
                    waiting, flushed = [], time.monotonic()
        except BaseException:
            bench.stop()
            _keep(bench, catalogue, waiting, run)
            raise
    return rows


def _row_of(item: Item, state: State[RunRow]) -> RunRow:
    """What a task's end means for its drafter: whatever broke, it is this row."""
    try:
        row: RunRow = state.result()
        return row
    except Refused as refused:
        refusals = tuple(refusal.as_json() for refusal in refused.refusals)
        return _row(item, verdict="refused", sentence=refusals[0]["sentence"], code=refused.code, refusals=refusals)
    except JobEnded as ended:
        return _row(item, verdict="failed", sentence=str(ended), code=ended.code)
    except MillError as error:
        return _row(item, verdict="failed", sentence=str(error), code=error.code)
    except Exception as error:
        return _row(item, verdict="failed", sentence=f"{type(error).__name__}: {error}", code="internal")


def _row(item: Item, **ending: Any) -> RunRow:
    return RunRow(
        repo=item.repo,
        family=item.family or None,
        route=item.route or None,
        ran=True,
        reason=item.reason,
        commit=item.commit or None,
        recipe=item.work.recipe.digest if item.work else None,
        remarks=item.work.remarks if item.work else (),
        **ending,
    )


def _keep(bench: Bench, catalogue: Catalogue, rows: list[RunRow], run: str) -> None:
    """Into the index first: what is said to be known here is not looked at again."""
    index_rows(bench.store, [(row, bench.items[row.repo]) for row in rows], catalogue)
    new = {row.repo: _standing(row, bench.items[row.repo], catalogue, run) for row in rows if row.commit}
    if new:
        update_standings(bench.store, new)


def _standing(row: RunRow, item: Item, catalogue: Catalogue, run: str) -> Standing:
    return Standing(
        verdict=row.verdict,
        sentence=row.sentence,
        commit=item.commit,
        family=item.family,
        route=item.route,
        rules=catalogue.rules_digest,
        made_of=item.made_of,
        at=_now(),
        run=run,
        recipe=row.recipe,
        code=row.code,
        manifest=row.manifest,
        size=item.work.listing.size if item.work else 0,
        seconds=row.job_seconds,
        pairs=tuple({key: pair[key] for key in ("target", "verdict", "off_pair")} for pair in row.pairs),
        listed=item.listed,
        files=item.files,
        unreached=row.unreached,
    )


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_summary(store: Store, summary: Summary) -> Summary:
    """Below reports/catalogue/<run>/, the JSON last. What is given back knows where it lies."""
    folder = f"reports/catalogue/{summary.run}"
    names = {"summary.md": f"{folder}/summary.md", "summary.json": f"{folder}/summary.json"}
    summary = summary.model_copy(update={"places": {name: store.where(key) for name, key in names.items()}})
    data = {
        "summary.md": summary.markdown(),
        "summary.json": json.dumps(summary.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n",
    }
    for name, key in names.items():
        body = data[name].encode()
        store.create(key, body, hashlib.sha256(body).hexdigest())
    return summary


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
