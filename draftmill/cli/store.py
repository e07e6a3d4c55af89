"""`draftmill store`: what a store is good for."""

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from draftmill.cli.retrieval import AsJson, Credentials, Store
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE
from draftmill.outcome import MillError, Refused
from draftmill.store.interface import Status
from draftmill.store.opening import open_store
from draftmill.store.probe import Probe, probe

app = typer.Typer(no_args_is_help=True, help="Look at a store.")

PASS, REFUSED_OR_FAILED = 0, 1
_COLOURS: dict[Status, str] = {"ok": "green", "downgraded": "yellow", "refused": "red", "not applicable": "dim"}
_VERDICTS = {
    "ok": "This store keeps every promise that publishing rests on.",
    "downgraded": "This store can be used; what it does not promise, draftmill makes up for as said above.",
    "refused": "This store cannot be used.",
}


@app.callback()
def store() -> None:
    """Look at a store."""


@app.command()
def check(
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    as_json: AsJson = False,
) -> None:
    """Try a store out: does it create only once, keep bytes, checksums, names?

    Writes a few small objects below probe/ and deletes them. Ends with 0 when the store can be used (also when
    downgraded), 1 when it is refused or cannot be reached.
    """
    try:
        found = probe(open_store(store, credentials_file))
    except MillError as error:
        _tell(error, as_json)
        raise typer.Exit(REFUSED_OR_FAILED) from None
    if as_json:
        typer.echo(json.dumps({"verdict": found.verdict, **asdict(found)}))
    else:
        _draw(found)
    raise typer.Exit(REFUSED_OR_FAILED if found.verdict == "refused" else PASS)


def _draw(found: Probe) -> None:
    console = printer(soft_wrap=False)
    table = Table(
        "check", "result", "what the store did", title=plain(f"{found.store}  ({found.server})"), title_justify="left"
    )
    for line in found.checks:
        colour = _COLOURS[line.status]
        table.add_row(line.name, f"[{colour}]{line.status}[/{colour}]", plain(line.measured))
    console.print(table)
    for line in found.checks:
        if line.meaning:
            console.print(f"[{_COLOURS[line.status]}]{line.name}[/]: {plain(line.meaning)}")
    console.print(_VERDICTS[found.verdict])


def _tell(error: MillError, as_json: bool) -> None:
    if as_json:
        outcome = "refused" if isinstance(error, Refused) else "failed"
        typer.echo(json.dumps({"verdict": outcome, "code": error.code, "error": str(error)}))
    else:
        Console(emoji=False, stderr=True, soft_wrap=True).print(plain(str(error)), style="red")
