"""The pipeline's verbs of the command line: they start the flow and show how it ended."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from draftmill.cli.folder import file_path, filled, folder
from draftmill.cli.retrieval import Hub, Store
from draftmill.cli.stock_options import StockConverter, StockPython
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE, PUBLIC_HUB
from draftmill.gguf.mixes import MIXES
from draftmill.licences.terms import KNOWN, terms_of
from draftmill.outcome import MillError, values
from flows.display import Display, progress_of, shown
from flows.order import DEFAULT_QUANTS, Ending, Order
from flows.signing import SignKey, use_key

ENDED_BADLY = 1

Runner = Annotated[Literal["process", "docker"], typer.Option(envvar="DRAFTMILL_RUNNER", help="Where jobs run.")]
Work = Annotated[
    Path, typer.Option(envvar="DRAFTMILL_WORK", parser=folder, metavar="FOLDER", help="Job cache and Prefect state.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say why each job ran or was skipped.")]


def convert(
    ref: Annotated[str, typer.Argument(parser=filled, metavar="REF", help="owner/repo[@revision], or a folder.")],
    quant: Annotated[
        list[str] | None, typer.Option(help="Encoding to make; may be given again. Default Q4_K_M.")
    ] = None,
    base: Annotated[
        Literal["F16", "BF16", "F32"], typer.Option(help="Encoding that the others are made from.")
    ] = "F16",
    tokenizer_from: Annotated[
        str | None, typer.Option(help="Whose tokenizer to borrow: owner/repo[@revision].")
    ] = None,
    converter: Annotated[Literal["native", "stock"], typer.Option(help="Ours, or llama.cpp's own.")] = "native",
    quantizer: Annotated[Literal["native", "stock"], typer.Option(help="Ours, or llama-quantize.")] = "native",
    runner: Runner = "process",
    store: Store = DEFAULT_STORE,
    work: Work = Path("mill-work"),
    hub: Hub = PUBLIC_HUB,
    name: Annotated[str | None, typer.Option(help="Publish under this owner/name.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence, where the repository names none.")] = None,
    licence_statement: Annotated[str | None, typer.Option(help="By which right you publish it.")] = None,
    licence_file: Annotated[
        list[Path] | None,
        typer.Option(parser=file_path, metavar="FILE", help="LICENSE or NOTICE to carry; may be given again."),
    ] = None,
    licence_text: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=FILE", help="Text of a licence that is inherited, such as llama3.1=LICENSE."),
    ] = None,
    derived_from: Annotated[
        list[str] | None, typer.Option(metavar="OWNER/REPO", help="What it was made from, where its card is silent.")
    ] = None,
    trained_for: Annotated[
        list[str] | None, typer.Option(metavar="OWNER/REPO", help="The target that it was trained for.")
    ] = None,
    sign_key: SignKey = None,
    stock_converter: StockConverter = None,
    stock_python: StockPython = None,
    llama_quantize: Annotated[
        str | None, typer.Option(parser=filled, metavar="FILE", help="The llama-quantize to use.")
    ] = None,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Take one model through the mill: download, check, convert, quantize, check again, publish with the evidence."""
    quants = tuple(dict.fromkeys(q.upper() for q in quant)) if quant else DEFAULT_QUANTS
    if quantizer == "native" and (unknown := [q for q in quants if q not in MIXES]):
        raise typer.BadParameter(f"{', '.join(unknown)}: ours makes {', '.join(MIXES)}; --quantizer stock makes others")
    if missing := [str(path) for path in licence_file or () if not path.is_file()]:
        raise typer.BadParameter(f"no such file: {', '.join(missing)}", param_hint="--licence-file")
    use_key(sign_key)
    order = Order(
        ref=ref,
        quants=quants,
        base=base,
        tokenizer_from=tokenizer_from,
        converter=converter,
        quantizer=quantizer,
        runner=runner,
        store=store,
        work=work.absolute(),
        hub=hub,
        name=name,
        licence=licence,
        licence_statement=licence_statement,
        licence_files=tuple(path.absolute() for path in licence_file or ()),
        licence_texts=_licence_texts(licence_text or ()),
        derived_from=tuple(dict.fromkeys(derived_from or ())),
        trained_for=tuple(dict.fromkeys(trained_for or ())),
        stock_converter=stock_converter and stock_converter.absolute(),
        stock_python=stock_python and stock_python.absolute(),
        llama_quantize=llama_quantize,
    )
    finish(convert_or_say(order, explain, as_json), as_json)


def _licence_texts(given: Iterable[str]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for text in given:
        id, _, file = text.partition("=")
        terms = terms_of(id)
        if terms is None or not Path(file).is_file():
            wrong = f"there is no file {file or '(none)'}" if terms else f"{id} is none of {', '.join(KNOWN)}"
            raise typer.BadParameter(wrong, param_hint="--licence-text")
        found[terms.id] = (*found.get(terms.id, ()), Path(file).absolute())
    return found


def convert_or_say(order: Order, explain: bool, as_json: bool) -> Ending:
    """`run_conversion`; a failure is JSON on standard output too where that was asked for."""
    try:
        return run_conversion(order, explain=explain)
    except MillError as error:
        if as_json:
            typer.echo(json.dumps({"kind": "failed", "ref": order.ref, "code": error.code, "sentence": str(error)}))
        raise


def run_conversion(order: Order, *, explain: bool = False) -> Ending:
    """Runs the flow on the Prefect server at hand. Raises MillError or JobEnded when something broke."""
    from flows.prefect_server import prefect_server

    if order.runner == "docker":
        with shown(explain) as display:
            ensure_images(jobs_of(order), display)
    with prefect_server(order.work):
        from flows.convert_model import convert_model

        with shown(explain):
            state: Any = convert_model(order.model_dump(mode="json"), return_state=True)
            ending: Ending = state.result()
            return ending


def jobs_of(order: Order) -> Iterable[tuple[str, dict[str, str]]]:
    """Those that between them need every image of the order."""
    return (
        ("intake", {}),
        ("convert", {"converter": order.converter}),
        ("quantize", {"quantizer": order.quantizer}),
    )


def ensure_images(jobs: Iterable[tuple[str, dict[str, Any]]], display: Display) -> None:
    """Builds the images that jobs of these names and parameters run in, where they are missing or of another source."""
    from flows.images import build_images, image_for
    from flows.runners.docker_engine import connect

    names = sorted({image_for(job, parameters).name for job, parameters in jobs})
    title = f"images: {', '.join(names)}"
    display.started(title, "jobs run in them")
    build_images(
        connect(),
        names,
        progress_of(display, title),
    )
    display.ended(title, "ok")


def finish(ending: Ending, as_json: bool) -> None:
    """Prints how it ended, and ends with the exit code for it."""
    if as_json:
        typer.echo(json.dumps(ending.model_dump(mode="json"), indent=1))
    else:
        show(ending)
    exit_as(ending)


def exit_as(ending: Ending) -> None:
    """Ends with the exit code of a refusal, where it is one."""
    if ending.kind == "refused":
        raise typer.Exit(ENDED_BADLY)


def show(ending: Ending) -> None:
    console = printer()
    colour = "red" if ending.kind == "refused" else "green"
    console.print(f"[{colour}]{ending.kind}[/{colour}] {plain(ending.ref)}: {plain(ending.sentence)}")
    for refusal in ending.refusals:
        console.print(
            f"  [bold]{plain(refusal['code'])}[/bold] at {plain(refusal['where'])}: {plain(refusal['sentence'])}"
        )
        console.print(f"    {plain(values(refusal['measured'], refusal['expected']))}")
    if not ending.manifest:
        return
    table = Table(box=None, pad_edge=False)
    for heading, justify in (("file", "left"), ("size", "right"), ("sha256", "left"), ("role", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for file in ending.manifest["files"]:
        table.add_row(file["path"], f"{file['size']:,}", file["sha256"][:12], file["role"])
    console.print(table)
    console.print(f"manifest {plain(ending.manifest_at or '')}")
    for path, place in ending.places.items():
        if path.endswith(".gguf"):
            console.print(f"artifact {plain(place)}")
