"""What list, show, pull, verify and url have in common: the store's options, and how they end."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from draftmill.cli.telling import plain
from draftmill.outcome import MillError, Refused
from draftmill.store.opening import CREDENTIALS_FILE

if TYPE_CHECKING:
    from draftmill.store.catalogue import Catalogue

PASS, REFUSED_OR_FAILED, NO_VERDICT = 0, 1, 3
COLOURS = {"pass": "green", "refused": "red", "no verdict": "yellow"}

Ref = Annotated[str, typer.Argument(help="owner/repo, or owner/repo@VERSION.", show_default=False)]
Store = Annotated[str, typer.Option(envvar="DRAFTMILL_STORE", help="A folder, file:///folder or s3://bucket/prefix.")]
Credentials = Annotated[
    Path | None, typer.Option(envvar=CREDENTIALS_FILE, help="A file in the form of ~/.aws/credentials.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quants = Annotated[
    list[str] | None, typer.Option("--quant", help="This encoding only, such as Q4_K_M; may be given again.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Read manifests and reports instead of the index: slower.")]
DEFAULT_STORE = "./mill-store"


def open_catalogue(store: str, credentials_file: Path | None) -> "Catalogue":
    from draftmill.store import Catalogue

    return Catalogue.open(store, credentials_file)


@contextmanager
def ending(as_json: bool) -> Iterator[None]:
    """A refusal or failure is JSON on standard output too where that was asked for."""
    try:
        yield
    except MillError as error:
        if not as_json:
            raise
        refusals = [refusal.as_json() for refusal in error.refusals] if isinstance(error, Refused) else []
        outcome = "refused" if refusals else "failed"
        print_json({"outcome": outcome, "code": error.code, "error": str(error), "refusals": refusals})
        raise typer.Exit(REFUSED_OR_FAILED) from None


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1))


def remark(sentences: Iterable[str]) -> None:
    """On standard error: about what is printed, and no part of it."""
    console = Console(emoji=False, stderr=True, soft_wrap=True)
    for sentence in sentences:
        console.print(f"[yellow]remark[/] {plain(sentence)}")
