"""`draftmill pull`, `verify` and `url`: a drafter's files, here and whole."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from draftmill.cli.bar import progress_bar
from draftmill.cli.ending import REFUSED_OR_FAILED, ending, print_json
from draftmill.cli.folder import file_path, filled
from draftmill.cli.folder import folder as folder_option
from draftmill.cli.retrieval import (
    NO_VERDICT,
    AsJson,
    Credentials,
    PublicKey,
    Quants,
    Ref,
    Store,
    open_catalogue,
    remark,
)
from draftmill.cli.telling import plain, printer, tell
from draftmill.configuration import DEFAULT_STORE
from draftmill.outcome import InputOutput, MillError, Refused
from draftmill.store.notices import obligation_line

if TYPE_CHECKING:
    from draftmill.measurement.servers.serve_line import Engine
    from draftmill.store.catalogue import Catalogue
    from draftmill.store.index import Measurement
    from draftmill.store.pull import Pulled

DAY_S = 24 * 3600
LibraryPath = Annotated[
    list[Path] | None,
    typer.Option(
        parser=folder_option,
        metavar="FOLDER",
        help="A folder of the engine's libraries; may be given again.",
        show_default=False,
    ),
]


def pull(
    ref: Ref,
    quant: Quants = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            parser=folder_option,
            metavar="FOLDER",
            help="The folder to write. Default: the repository's name, here.",
        ),
    ] = None,
    engine: Annotated[
        Path | None,
        typer.Option(
            envvar="DRAFTMILL_ENGINE",
            parser=file_path,
            metavar="FILE",
            help="Your llama-server: the printed line suits it.",
        ),
    ] = None,
    library_path: LibraryPath = None,
    public_key: PublicKey = None,
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a drafter, every byte verified, with its notices; print how llama-server uses it.

    After an interruption the same command goes on where it ended. Nothing that the manifest does not promise is kept.
    """
    from draftmill.measurement.servers.serve_line import find_engine

    with ending(as_json):
        # A wrong --engine is told before gigabytes are fetched.
        server = find_engine(engine, library_path or ())
        catalogue = open_catalogue(store, credentials_file)
        place = catalogue.find(ref)
        folder = out or Path(place.entry.rpartition("/")[2])
        with progress_bar() as progress:
            pulled = catalogue.pull(place.folder, folder, quant or (), progress, public_key=public_key)
        lines = _serve_lines(catalogue, pulled, server)
        if later := catalogue.later_verdict(pulled.manifest):
            why = f", {later.reason.code}: {later.reason.sentence}" if later.reason else ""
            remark([f"this is an older publication; the newest verdict on {later.entry} is {later.verdict}{why}"])
        remark(catalogue.problems)
        if as_json:
            print_json(
                {
                    "outcome": "ok",
                    "publication": str(place),
                    "folder": str(folder),
                    "manifest": pulled.manifest.key,
                    "files": [file.model_dump(mode="json") for file in pulled.files],
                    "received": pulled.received,
                    "kept": pulled.kept,
                    "signed": public_key is not None,
                    "notices": list(pulled.manifest.notices),
                    "obligations": [each.model_dump(mode="json") for each in pulled.manifest.obligations],
                    "serve": [line for _, line, _ in lines],
                }
            )
        else:
            _draw(pulled, str(place), server, lines, public_key)


def _draw(
    pulled: "Pulled", place: str, server: "Engine", lines: list[tuple[str, str, str]], public_key: Path | None
) -> None:
    console = printer()
    manifest = pulled.manifest
    kept = f", {pulled.kept:,} were there" if pulled.kept else ""
    console.print(
        f"[green]verified[/] {plain(place)}: {len(pulled.files)} files in {plain(str(pulled.folder))}"
        f" ({pulled.received:,} bytes came{kept})"
    )
    if public_key:
        console.print(f"[green]signed[/] by the key of {plain(str(public_key))}")
    console.print(f"licence {plain(manifest.terms or 'not named')}, see draftmill-notices.txt")
    for obligation in manifest.obligations:
        console.print(f"terms {plain(obligation_line(obligation))}")
    for notice in manifest.notices:
        console.print(plain(notice))
    for sentence in manifest.cannot:
        console.print(f"[yellow]cannot[/] {plain(sentence)}")
    if not lines:
        return
    console.print(f"\nWith {plain(server.about)}:")
    for _, line, about in lines:
        console.print(f"  {plain(line)}", style="bold")
        console.print(f"  {plain(about)}", style="dim")


def _serve_lines(catalogue: "Catalogue", pulled: "Pulled", server: "Engine") -> list[tuple[str, str, str]]:
    """(file, command line, where its numbers are from) of each model."""
    from draftmill.measurement.servers.serve_line import DEFAULT_USE, Use, serve_line

    found = []
    for file in pulled.files:
        if file.role == "model":
            best = _best(catalogue.measurements(file.sha256))
            use = Use(best.n_max, best.n_min or 0, best.p_min or 0.0) if best else DEFAULT_USE
            try:
                line = serve_line(server, pulled.folder / file.path, use)
            except Refused as refused:
                remark(f"{server.about}: {refusal.sentence}" for refusal in refused.refusals)
                return []
            about = (
                f"as measured on {best.device} with {best.target_name}: {best.sentence}"
                if best
                else "TARGET.gguf: a model with this vocabulary; not measured yet, so the numbers are draftmill's usual"
            )
            found.append((file.path, line, about))
    return found


def _best(measurements: "Iterable[Measurement]") -> "Measurement | None":
    """The newest that was faster, else the newest."""
    ordered = sorted(measurements, key=lambda each: (each.word == "faster", each.started))
    return ordered[-1] if ordered else None


def verify(
    path: Annotated[
        str,
        typer.Argument(
            parser=filled,
            metavar="PATH_OR_REF",
            help="A pulled folder; or owner/repo, with a store.",
            show_default=False,
        ),
    ],
    quant: Quants = None,
    public_key: PublicKey = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="DRAFTMILL_STORE",
            parser=filled,
            metavar="STORE",
            help="Also hold the manifest against the one published in this store.",
        ),
    ] = None,
    credentials_file: Credentials = None,
    as_json: AsJson = False,
) -> None:
    """Hold a pulled folder, or a publication where it lies, against its manifest, byte for byte.

    With --public-key also against the signature by that key: a missing one, or one by another key, is refused.
    Ends with 0 when all is as published, 1 when something is not, 3 when it cannot be told.
    """
    from draftmill.store.verify import verify as verify_folder

    with ending(as_json):
        try:
            catalogue = open_catalogue(store, credentials_file) if store else None
            with progress_bar() as progress:
                if not Path(path).exists():
                    if catalogue is None:
                        raise InputOutput(
                            f"There is no folder {path}. To verify a publication where it lies, name its store with "
                            "--store or DRAFTMILL_STORE.",
                            code="verify.no_folder",
                            where=path,
                        )
                    found = catalogue.verify_published(path, progress, public_key=public_key)
                else:
                    against = catalogue.store if catalogue else None
                    found = verify_folder(Path(path), quant or (), against, progress, public_key=public_key)
        except InputOutput as error:
            _no_verdict(error, as_json)
            raise typer.Exit(NO_VERDICT) from None
        verdict = "refused" if found.findings else "pass"
        if as_json:
            print_json(
                {
                    "verdict": verdict,
                    "entry": found.manifest.entry,
                    "manifest": found.manifest.key,
                    "verified": [file.path for file in found.verified],
                    "signed": None if public_key is None else not found.findings,
                    "not_expected": [file.path for file in found.not_expected],
                    "refusals": [refusal.as_json() for refusal in found.findings],
                }
            )
        else:
            _draw_verdict(found, public_key)
        raise typer.Exit(REFUSED_OR_FAILED if found.findings else 0)


def _draw_verdict(found: Any, public_key: Path | None) -> None:
    console = printer()
    for refusal in found.findings:
        tell(console, "refused", refusal.as_json())
    absent = f"; not asked for: {', '.join(file.path for file in found.not_expected)}" if found.not_expected else ""
    said = f"{len(found.verified)} files of {found.manifest.folder} are as published"
    if bad := len(found.findings):
        said += f", and {bad} {'finding says' if bad == 1 else 'findings say'} what is not"
    if public_key and not found.findings:
        said += f", and signed by the key of {public_key}"
    shown = "[red]refused:[/]" if found.findings else "[green]pass[/]"
    console.print(f"{shown} {plain(said + absent)}")


def _no_verdict(error: MillError, as_json: bool) -> None:
    if as_json:
        print_json({"verdict": "no verdict", "code": error.code, "error": str(error), "refusals": []})
    else:
        Console(emoji=False, stderr=True, soft_wrap=True).print(
            f"[yellow]no verdict[/] {plain(error.code)}: {plain(str(error))}"
        )


def url(
    ref: Ref,
    file: Annotated[
        str | None, typer.Option(parser=filled, metavar="PATH", help="Of this file only, by its path in the manifest.")
    ] = None,
    quant: Quants = None,
    expires: Annotated[int, typer.Option(help="Seconds that the addresses last, 7 days at most.")] = DAY_S,
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    as_json: AsJson = False,
) -> None:
    """Print addresses that need no credentials: whoever has one can read that file until it expires."""
    with ending(as_json):
        catalogue = open_catalogue(store, credentials_file)
        found = catalogue.urls(ref, file=file, quants=quant or (), expires_s=expires)
        remark(catalogue.problems)
        if as_json:
            print_json(
                [{**each.file.model_dump(mode="json"), "url": each.url, "expires_s": each.expires_s} for each in found]
            )
        elif file:
            typer.echo(found[0].url)
        else:
            for each in found:
                typer.echo(f"{each.file.path}\t{each.url}")
