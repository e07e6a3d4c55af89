"""`draftmill dflash convert`: a draft from any of its three forms to any other."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from draftmill.cli.bar import progress_bar
from draftmill.cli.dflash_forward import named_endings, one_of
from draftmill.cli.ending import ending, print_json
from draftmill.cli.folder import file_path
from draftmill.cli.stock_options import StockConverter, StockPython
from draftmill.cli.telling import plain

if TYPE_CHECKING:
    from draftmill.dflash.conversion.account import Account

FORMS = ("gguf", "hf", "q4nx")
STOCK = "stock"
CONVERTERS = ("native", STOCK)
WIDTH = 110


def convert_command(
    source: Annotated[
        Path,
        typer.Argument(
            parser=file_path, help="A draft: an upstream checkpoint's folder, a package's, or a .gguf file."
        ),
    ],
    out: Annotated[
        Path, typer.Argument(parser=file_path, help="The folder or .gguf file to write; must not be there.")
    ],
    to: Annotated[str, typer.Option(metavar="gguf|hf|q4nx", help="The form to write.")],
    target: Annotated[
        Path | None,
        typer.Option(
            parser=file_path,
            metavar="FOLDER|GGUF",
            help="The target that the draft was trained for: a GGUF carries its vocabulary. A GGUF source has its own.",
        ),
    ] = None,
    converter: Annotated[
        str,
        typer.Option(
            metavar="native|stock",
            help="Who writes the vocabulary of a target's folder: ours, or llama.cpp's own, which knows more models.",
        ),
    ] = "native",
    stock_converter: StockConverter = None,
    stock_python: StockPython = None,
    outtype: Annotated[
        str | None,
        typer.Option(
            metavar="auto|codes|f32|f16|bf16",
            help="Of a GGUF's matrices. auto: every value kept, of a checkpoint as llama.cpp has it. codes: "
            "codes kept, whatever rounding their factors costs.",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="q4_1|q4_k|bf16",
            help="Of a package's matrices. Default: the source's own codes; a source of floats has to be told.",
        ),
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--non-causal", help="For sliding layers of a config that does not state it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole account.")] = False,
) -> None:
    """Convert a draft, and say of every tensor whether it is what it was, or what was done to it at what cost.

    Ends with 0 when written, 1 when the draft is refused or something broke, 2 on wrong usage.
    """
    from draftmill.cli.measure_running import ended_by_signals
    from draftmill.dflash.conversion.convert import ENCODINGS, convert
    from draftmill.dflash.conversion.form import Form
    from draftmill.gguf.stock_script import stock_script

    one_of("--to", to, FORMS)
    if encoding is not None:
        one_of("--encoding", encoding, tuple(ENCODINGS))
        if to != Form.Q4NX:
            raise typer.BadParameter(f"is of packages, and --to is {to}", param_hint="--encoding")
    for option, given in (("--target", target), ("--outtype", outtype)):
        if given is not None and to != Form.GGUF:
            raise typer.BadParameter(f"is of GGUF files, and --to is {to}", param_hint=option)
    if target is not None and not target.exists():
        raise typer.BadParameter(f"{target} is not there; name the target's folder or GGUF", param_hint="--target")
    one_of("--converter", converter, CONVERTERS)
    if converter == STOCK and not (target and target.is_dir()):
        sentence = "stock is for a --target that is a folder; leave it away, since a GGUF has its vocabulary already"
        raise typer.BadParameter(sentence, param_hint="--converter")
    for option, place in (("--stock-converter", stock_converter), ("--stock-python", stock_python)):
        if place is not None and converter != STOCK:
            raise typer.BadParameter("is of --converter stock", param_hint=option)
    if to == Form.GGUF:
        from draftmill.dflash.gguf_form.writing import OUTTYPES

        one_of("--outtype", outtype or "auto", OUTTYPES)
    with ending(as_json), progress_bar() as progress, ended_by_signals(), named_endings():
        account = convert(
            source,
            out,
            Form(to),
            target=target,
            converter=stock_script(stock_converter, stock_python) if converter == STOCK else None,
            outtype=outtype or "auto",
            encoding=ENCODINGS[encoding] if encoding else None,
            causal=causal,
            progress=progress,
        )
    if as_json:
        print_json({"outcome": "ok", "written": str(out)} | account.as_json())
    else:
        _draw(account, out)


def _draw(account: "Account", out: Path) -> None:
    console = Console(emoji=False, soft_wrap=True, width=max(Console().width, WIDTH))
    table = Table(box=None, header_style="bold")
    for heading in ("tensors", "from", "to", "what became of them", "rel. RMS", "largest"):
        table.add_column(heading, no_wrap=True)
    for row in account.rows():
        table.add_row(
            str(row.tensors), row.source, row.target, row.how.value, f"{row.relative_rms:.2e}", f"{row.largest:.2e}"
        )
    console.print(table)
    for remark in account.remarks:
        console.print(f"[yellow]remark[/] {plain(remark)}")
    if account.left_behind:
        console.print(f"[yellow]left behind[/] {plain(', '.join(account.left_behind))}: keys that nothing here reads")
    for file in account.out:
        console.print(f"{file.sha256}  {plain(file.path)}  {file.size:,} bytes")
    verdict = "every value is what it was" if account.worst is None else "not every value is what it was"
    console.print(f"[green]written[/] {plain(str(out))}: {verdict}")
