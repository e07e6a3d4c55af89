"""What list, show, pull, verify and url have in common: the store's options, and how they end."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from draftmill.cli.folder import file_path, filled
from draftmill.cli.telling import plain
from draftmill.store.opening import CREDENTIALS_FILE

if TYPE_CHECKING:
    from draftmill.store.catalogue import Catalogue

PASS, NO_VERDICT = 0, 3
COLOURS = {"pass": "green", "refused": "red", "no verdict": "yellow"}

Ref = Annotated[
    str, typer.Argument(parser=filled, metavar="REF", help="owner/repo, or owner/repo@VERSION.", show_default=False)
]
Store = Annotated[
    str,
    typer.Option(
        envvar="DRAFTMILL_STORE", parser=filled, metavar="STORE", help="A folder, file:///folder or s3://bucket/prefix."
    ),
]
Credentials = Annotated[
    Path | None,
    typer.Option(
        envvar=CREDENTIALS_FILE, parser=file_path, metavar="FILE", help="A file in the form of ~/.aws/credentials."
    ),
]
Hub = Annotated[
    str, typer.Option(envvar="HF_ENDPOINT", parser=filled, metavar="URL", help="A hub, or file:///folder of a mirror.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quants = Annotated[
    list[str] | None, typer.Option("--quant", help="This encoding only, such as Q4_K_M; may be given again.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Read manifests and reports instead of the index: slower.")]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        envvar="DRAFTMILL_PUBLIC_KEY",
        parser=file_path,
        metavar="FILE",
        help="The publisher's public key (PEM): it has to be signed by it.",
    ),
]


def open_catalogue(store: str, credentials_file: Path | None) -> "Catalogue":
    from draftmill.store import Catalogue

    return Catalogue.open(store, credentials_file)


def remark(sentences: Iterable[str]) -> None:
    """On standard error: about what is printed, and no part of it."""
    console = Console(emoji=False, stderr=True, soft_wrap=True)
    for sentence in sentences:
        console.print(f"[yellow]remark[/] {plain(sentence)}")
