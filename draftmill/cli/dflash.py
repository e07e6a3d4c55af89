"""`draftmill dflash`: makes FastFlowLM draft packages, and runs drafts on arrays."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from draftmill.cli.bar import progress_bar
from draftmill.cli.dflash_convert import convert_command
from draftmill.cli.dflash_forward import compare_command, forward_command, named_endings, pick_command
from draftmill.cli.folder import folder
from draftmill.cli.telling import plain
from draftmill.dflash.packing import Packed, pack
from draftmill.outcome import MillError, Refused
from draftmill.q4nx.encodings import Kind

app = typer.Typer(no_args_is_help=True, help="Make DFlash packages, and run drafts on arrays.")

REFUSED_OR_FAILED = 1
WIDTH = 120
"""Columns that the longest row takes."""
ENCODINGS = {"q4_1": Kind.Q4_1, "q4_k": Kind.Q4_K}


@app.callback()
def dflash() -> None:
    """Make DFlash packages, and run drafts on arrays."""


app.command("convert")(convert_command)
app.command("forward")(forward_command)
app.command("pick")(pick_command)
app.command("compare")(compare_command)


@app.command("pack")
def pack_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="HF_FOLDER", exists=True, file_okay=False, help="A DFlash checkpoint: config.json and safetensors."
        ),
    ],
    out: Annotated[
        Path, typer.Argument(parser=folder, help="The package's folder; it must not be there, or be empty.")
    ],
    encoding: Annotated[
        str | None,
        typer.Option(metavar="q4_1|q4_k", help="Of projections. Default: q4_1 for generation 1, q4_k for 2."),
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--non-causal", help="For sliding layers of a config that does not state it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Pack an upstream DFlash checkpoint in the vendor's layout, and say how far each tensor is from its source.

    Ends with 0 when the package is written, 1 when the checkpoint is refused or something broke, 2 on wrong usage.
    """
    if encoding is not None and encoding.lower() not in ENCODINGS:
        raise typer.BadParameter(f"{encoding} is none of {', '.join(ENCODINGS)}", param_hint="--encoding")
    kind = ENCODINGS[encoding.lower()] if encoding else None
    try:
        with progress_bar() as progress, named_endings():
            packed = pack(checkpoint, out, kind, causal=causal, progress=progress)
    except MillError as error:
        if not as_json:
            raise
        typer.echo(json.dumps(_ending(error)))
        raise typer.Exit(REFUSED_OR_FAILED) from None
    if as_json:
        typer.echo(json.dumps(as_value(packed)))
    else:
        _draw(packed)


def as_value(packed: Packed) -> dict[str, Any]:
    """The JSON of a packed draft."""
    return {
        "outcome": "ok",
        "package": str(packed.written.folder),
        "generation": packed.config.generation,
        "encoding": packed.encoding.value,
        "files": [vars(file) for file in packed.written.files],
        "tensors": [error.as_json() for error in packed.written.errors],
        "remarks": [remark.as_json() for remark in packed.config.remarks],
        "names": [vars(variant) for variant in packed.variants],
    }


def _ending(error: MillError) -> dict[str, Any]:
    if isinstance(error, Refused):
        return {"outcome": "refused", "refusals": [refusal.as_json() for refusal in error.refusals]}
    return {"outcome": "failed", "code": error.code, "error": str(error)}


def _draw(packed: Packed) -> None:
    # Rows may be wider than the terminal: a cut name or figure helps nobody.
    console = Console(emoji=False, soft_wrap=True, width=max(Console().width, WIDTH))
    table = Table(box=None, header_style="bold")
    for heading in ("tensor", "shape", "stored as", "cosine", "rel. RMS", "largest"):
        table.add_column(heading, no_wrap=True)
    for error in packed.written.errors:
        shape = " x ".join(map(str, error.shape)) + (f" (+{error.padded_columns})" if error.padded_columns else "")
        table.add_row(
            plain(error.name), shape, error.kind, _number(error.cosine, ".6f"), _number(error.relative_rms, ".2e"),
            f"{error.largest:.2e}",
        )  # fmt: skip
    console.print(table)
    for remark in packed.config.remarks:
        console.print(f"[yellow]remark[/] {plain(remark.where)}: {plain(remark.sentence)}")
    for file in packed.written.files:
        console.print(f"{file.sha256}  {plain(file.path)}  {file.size:,} bytes")
    console.print(f"[green]written[/] {plain(str(packed.written.folder))}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
