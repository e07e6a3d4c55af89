"""`draftmill catalogue`: what changed at the authors, what a run would do, and the run."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from draftmill.cli.folder import file_path
from draftmill.cli.retrieval import Hub
from draftmill.cli.telling import printer
from draftmill.configuration import DEFAULT_STORE, PUBLIC_HUB, config_path
from draftmill.outcome import MillError
from flows.commands import AsJson, Explain, Runner, Store, Work, ensure_images
from flows.display import shown
from flows.signing import SignKey, use_key

app = typer.Typer(no_args_is_help=True, help="Every drafter that is known, and what there is to do.")

FAILED, NO_VERDICT = 1, 3
LONGEST = 30
"""Unchanged drafters that are named one by one; --json names all."""
COLOURS = {"pass": "green", "refused": "red", "no verdict": "yellow", "failed": "red"}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?", re.IGNORECASE)
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}".upper(): base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}

CatalogueFile = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        envvar="DRAFTMILL_CATALOGUE",
        parser=file_path,
        metavar="FILE",
        help="Default config/catalogue.yaml.",
    ),
]


def _some(pattern: str | None) -> str | None:
    if pattern is not None and not pattern.strip():
        raise typer.BadParameter("is empty; write a pattern of owner/repo, or leave it out for all")
    return pattern


Only = Annotated[str | None, typer.Option(help="Pattern of owner/repo, such as 'amd/PARD2-*'.", callback=_some)]
Again = Annotated[bool, typer.Option("--again", help="Also what nothing changed of.")]


@app.callback()
def catalogue() -> None:
    """Every drafter that is known, and what there is to do."""


@app.command()
def discover(
    author: Annotated[list[str] | None, typer.Option(help="Default: every author in the catalogue.")] = None,
    catalogue: CatalogueFile = None,
    store: Store = DEFAULT_STORE,
    hub: Hub = PUBLIC_HUB,
    as_json: AsJson = False,
) -> None:
    """List the authors on the hub, and propose rows for what is new, gone, renamed or re-licensed.

    Changes nothing: take over the rows that you agree with. Ends with 0 also when there are proposals.
    """
    from dataclasses import asdict

    from flows.catalogue_discovery import discover as look

    found = look(_path(catalogue), author, hub=hub, store=store)
    if as_json:
        typer.echo(json.dumps([asdict(proposal) for proposal in found], indent=1))
        return
    console = printer(highlight=False)
    for proposal in found:
        console.print(f"[bold]{proposal.kind}[/bold] {escape(proposal.repo)}: {escape(proposal.sentence)}")
    for heading, replaces in (
        ("Rows to add to the section drafters of the catalogue:", False),
        ("Rows to put in the place of those that stand; added beside them they would be given twice:", True),
    ):
        rows = [proposal for proposal in found if proposal.row and bool(proposal.replaces) == replaces]
        if rows:
            console.print(f"\n{heading}\n")
        for each in rows:
            if each.replaces:
                typer.echo(f"  # replaces the row {each.replaces}")
            typer.echo(each.row)
    if not found:
        console.print("Nothing is new, gone, renamed or re-licensed.")


@app.command()
def plan(
    only: Only = None,
    again: Again = False,
    catalogue: CatalogueFile = None,
    store: Store = DEFAULT_STORE,
    work: Work = Path("mill-work"),
    hub: Hub = PUBLIC_HUB,
    as_json: AsJson = False,
) -> None:
    """Say what a run would do, why, how many bytes and how long. Writes nothing and runs nothing."""
    from draftmill.catalogue.catalogue import load_catalogue
    from draftmill.store.opening import open_store
    from flows.catalogue_order import CatalogueOrder
    from flows.catalogue_plan import as_json as plan_json
    from flows.catalogue_planner import make_plan

    path = _path(catalogue)
    order = CatalogueOrder(catalogue=path, only=only, again=again, hub=hub, store=store, work=work.absolute())
    try:
        with shown(False):
            made = make_plan(order, load_catalogue(path), open_store(store))
    except MillError as error:
        raise _as_usage(error) from None
    if as_json:
        typer.echo(json.dumps(plan_json(made), indent=1))
        return
    console = printer(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("drafter", "family", "route"):
        table.add_column(heading)
    for heading in ("MB", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("why")
    for item in made.items:
        size = f"{item.work.needs.download / 1e6:,.1f}" if item.work else ""
        seconds = "?" if item.seconds is None else f"{item.seconds:,.0f}"
        why = item.reason + (f"; will be told: {item.problem.code}" if item.problem else "")
        table.add_row(*map(escape, (item.repo, item.family or "?", item.route or "", size, seconds, why)))
    if made.items:
        console.print(table)
    for item in made.items:
        for remark in item.work.remarks if item.work else ():
            console.print(f"[yellow]remark[/] {escape(item.repo)}: {escape(remark)}")
    in_all, unknown = made.seconds
    known = f"about {in_all:,.0f} s of jobs" + (f", and {unknown} of a kind that never ran" if unknown else "")
    console.print(f"{len(made.items)} to run: {made.download / 1e6:,.1f} MB to fetch, {known}")
    if len(made.skips) <= LONGEST:
        for skip in made.skips:
            console.print(f"{escape(skip.repo)}: {skip.verdict}, {escape(skip.reason)}", style="dim")
    else:
        counts = Counter(skip.verdict for skip in made.skips)
        console.print(
            "unchanged: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()), style="dim"
        )
    for repo in made.unlisted:
        console.print(f"{escape(repo)} has a family's name and no row: draftmill catalogue discover", style="yellow")


@app.command()
def run(
    only: Only = None,
    again: Again = False,
    max_parallel: Annotated[int, typer.Option(min=1, max=64, help="Drafters at once.")] = 2,
    memory: Annotated[str | None, typer.Option(help="For all at once, such as 12GiB. Default: what is free.")] = None,
    disk: Annotated[str | None, typer.Option(help="For all at once, such as 200GB. Default: what is free.")] = None,
    catalogue: CatalogueFile = None,
    runner: Runner = "process",
    store: Store = DEFAULT_STORE,
    work: Work = Path("mill-work"),
    hub: Hub = PUBLIC_HUB,
    sign_key: SignKey = None,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Run every drafter of which something changed; one that fails is one row.

    Ends with 0 when every drafter that ran has a verdict, pass or refused; 1 when one failed; 3 when none failed and
    one has no verdict.
    """
    from flows.catalogue_order import CatalogueOrder

    use_key(sign_key)
    order = CatalogueOrder(
        catalogue=_path(catalogue).absolute(),
        only=only,
        again=again,
        max_parallel=max_parallel,
        memory_bytes=_bytes(memory, "--memory"),
        disk_bytes=_bytes(disk, "--disk"),
        runner=runner,
        hub=hub,
        store=store,
        work=work.absolute(),
    )
    try:
        summary = _run(order, explain)
    except MillError as error:
        if as_json:
            typer.echo(json.dumps({"outcome": "failed", "code": error.code, "sentence": str(error)}))
        raise _as_usage(error) from None
    if as_json:
        typer.echo(json.dumps(summary.model_dump(mode="json"), indent=1))
    else:
        show(summary)
    if summary.counts.get("failed"):
        raise typer.Exit(FAILED)
    if summary.counts.get("no verdict"):
        raise typer.Exit(NO_VERDICT)


def _run(order: Any, explain: bool) -> Any:
    """The Summary of the flow, run on the Prefect server at hand. Raises MillError when the run itself broke."""
    from flows.prefect_server import prefect_server

    if order.runner == "docker":
        with shown(explain) as display:
            ensure_images([("convert", {"converter": "native"})], display)  # every route's jobs run in this one
    with prefect_server(order.work):
        from flows.catalogue_run import catalogue_run

        with shown(explain):
            state: Any = catalogue_run(order.model_dump(mode="json"), return_state=True)
            return state.result()


def show(summary: Any) -> None:
    console = printer(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("drafter", "family", "verdict", "result"):
        table.add_column(heading)
    for row in summary.rows:
        if row.ran:
            colour = COLOURS[row.verdict]
            result = f"{row.code}: {row.sentence}" if row.code else row.sentence
            table.add_row(
                escape(row.repo), escape(row.family or "?"), f"[{colour}]{row.verdict}[/{colour}]", escape(result)
            )
    if any(row.ran for row in summary.rows):
        console.print(table)
    console.print(escape(summary.sentence))
    for name, place in summary.places.items():
        console.print(f"{name} {escape(place)}")


def _as_usage(error: MillError) -> Exception:
    """A pattern that fits no drafter is a mistyped option here; only the plan can tell."""
    return typer.BadParameter(str(error), param_hint="--only") if error.code == "catalogue.only" else error


def _path(given: Path | None) -> Path:
    return given or config_path("catalogue.yaml")


def _bytes(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match or not (size := int(float(match[1]) * _UNITS[(match[2] or "").upper()])):
        raise typer.BadParameter(f"{text} is no size; write 12GiB or 200GB", param_hint=option)
    return size
