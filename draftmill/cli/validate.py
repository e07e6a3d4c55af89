"""`draftmill validate`: is a FastFlowLM draft package what it says it is?

A folder is gated where it lies. A repository's package is downloaded into the work folder first, every file verified.
`--publish` hands the same to the pipeline, which comes in by an entry point where it is installed: download, gate and
publication are then jobs, and the report goes into the store.
"""

import json
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from draftmill.cli.bar import progress_bar
from draftmill.cli.folder import file_path, folder
from draftmill.cli.given import refuse_given
from draftmill.cli.measure_options import PromptFiles, Quick, TargetDtype, TorchDevice
from draftmill.cli.retrieval import Hub, Store
from draftmill.cli.telling import plain, printer, tell
from draftmill.cli.validate_run import asked_run, check_run_options, run_after, show_run
from draftmill.configuration import DEFAULT_STORE, PUBLIC_HUB
from draftmill.outcome import BadConfiguration, InputOutput, MillError, Refused

PASS, REFUSED, NO_VERDICT = 0, 1, 3
EXITS = {"pass": PASS, "refused": REFUSED, "no verdict": NO_VERDICT}
COLOURS = {
    "pass": "green",
    "refused": "red",
    "undetermined": "yellow",
    "no verdict": "yellow",
    "not run": "dim",
    "not applicable": "dim",
}
OF_PUBLISHING = ("store", "runner", "sign_key")
PIPELINE = "draftmill.pipeline"
"""Entry points of what needs more than the base install; `validate_package(ref, hub, store, work, runner, sign_key)` is
one."""


def validate(
    call: typer.Context,
    package: Annotated[
        str | None, typer.Argument(help="A package's folder, or owner/repo[@revision].", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="Write gate.json and report.html into this folder."),
    ] = None,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Show every check a package that only it catches.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Then run the package on a target, in the same report.")] = False,
    target: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="With --run: the Hugging Face folder of its target."),
    ] = None,
    prompts: PromptFiles = None,
    quick: Quick = False,
    max_new: Annotated[int, typer.Option("--max-new", min=8, help="With --run: new tokens an answer.")] = 64,
    dtype: TargetDtype = "float32",
    torch_device: TorchDevice = "cpu",
    publish: Annotated[bool, typer.Option("--publish", help="Put the report into the store.")] = False,
    store: Store = DEFAULT_STORE,
    work: Annotated[
        Path, typer.Option(envvar="DRAFTMILL_WORK", parser=folder, metavar="FOLDER", help="Where downloads are kept.")
    ] = Path("mill-work"),
    hub: Hub = PUBLIC_HUB,
    runner: Annotated[
        Literal["process", "docker"], typer.Option(envvar="DRAFTMILL_RUNNER", help="Where jobs run, with --publish.")
    ] = "process",
    sign_key: Annotated[
        Path | None,
        typer.Option(
            envvar="DRAFTMILL_SIGN_KEY",
            parser=file_path,
            metavar="FILE",
            help="Sign what --publish publishes with this private key (PEM).",
        ),
    ] = None,
) -> None:
    """Prove or refute what a FastFlowLM DFlash package says of itself, check by check.

    With --run a package that passes is run on its target: none of its drafts accepted is a refusal; a target that it
    cannot run on, or a text that is not the target's own, leaves no verdict.

    Ends with 0 when the package passes, 1 when it is refused or something broke, 2 on wrong usage, 3 when there is no
    verdict (a file cannot be read, or is still being written). Nothing is written beside the package.
    """
    if selftest == (package is not None):
        raise typer.BadParameter("give a package, or --selftest", param_hint="PACKAGE")
    if package is not None and not package.strip():
        raise typer.BadParameter("is empty; give a folder, or owner/repo", param_hint="PACKAGE")
    if selftest:
        refuse_given(call, {each.name for each in call.command.params} - {"selftest", "as_json"}, "is of a package")
    if not publish:
        refuse_given(call, OF_PUBLISHING, "belongs to --publish")
    check_run_options(call, run, target)
    try:
        if selftest:
            raise typer.Exit(_selftest(as_json))
        assert package is not None  # noqa: S101 - or it was the self-test
        if report:
            _ready_report_folder(report, package)
        asked = asked_run(prompts, quick, max_new, dtype, torch_device) if target else None
        if publish:
            told = {"run": asked.model_dump(mode="json"), "target": target.absolute()} if asked and target else {}
            value = _published(package, hub, store, work.absolute(), runner, sign_key, told)
        else:
            place, left_aside = _placed(package, hub, work)
            found = _gated(place, left_aside)
            value = {"gate": run_after(found, place, target, asked) if target else found}
        if report:
            _write_report(report, value["gate"], package)
    except MillError as error:
        if not as_json:
            raise
        typer.echo(json.dumps(_ending(error)))
        raise typer.Exit(REFUSED) from None
    if as_json:
        typer.echo(json.dumps(value["gate"] | {name: each for name, each in value.items() if name != "gate"}))
    else:
        show_run(value["gate"])
        show(value["gate"], package)
        for name, place in value.get("published", {}).items():
            typer.echo(f"{name}: {place}")
    raise typer.Exit(EXITS[value["gate"]["verdict"]])


def _gated(place: Path, left_aside: tuple[str, ...]) -> dict[str, Any]:
    from draftmill.dflash.gate import gate

    with progress_bar() as progress:
        return gate(place, progress, left_aside=left_aside).as_json()


def _placed(package: str, hub: str, work: Path) -> tuple[Path, tuple[str, ...]]:
    """Where the package lies, and the names of files of it that were left aside."""
    from draftmill.dflash.gate_files import is_folder

    return (Path(package), ()) if is_folder(Path(package)) else _downloaded(package, hub, work)


def _downloaded(package: str, hub: str, work: Path) -> tuple[Path, tuple[str, ...]]:
    """The package's files below work/packages/, each verified against the hub's digests; and the names of those that
    were left aside. Raises what `resolve` and `download` raise."""
    from draftmill.hub.download import download
    from draftmill.hub.ref import parse_ref
    from draftmill.hub.resolve import resolve
    from draftmill.hub.source import given_token, source_at

    ref = parse_ref(package)
    source = source_at(hub, given_token())
    listing = resolve(ref, source, "package")
    folder = work / "packages" / (ref.repo or "") / listing.commit[:12]
    with progress_bar() as progress:
        download(listing, source, folder, progress=progress)
    return folder, listing.not_taken


def _published(
    package: str, hub: str, store: str, work: Path, runner: str, sign_key: Path | None, told: dict[str, Any]
) -> dict[str, Any]:
    """{"gate": ..., "published": name -> place}. told: of the run, where one is asked for."""
    from draftmill.dflash.gate_files import is_folder

    found = list(entry_points(group=PIPELINE, name="validate_package"))
    try:
        run = found[0].load()
    except (IndexError, ModuleNotFoundError) as error:
        raise BadConfiguration(
            f"--publish needs the pipeline ({error}): pip install 'draftmill[pipeline]', or use ./mill",
            code="cli.pipeline",
        ) from None
    ref = str(Path(package).resolve()) if is_folder(Path(package)) else package
    value: dict[str, Any] = run(ref, hub=hub, store=store, work=work, runner=runner, sign_key=sign_key, **told)
    return value


def _ready_report_folder(folder: Path, package: str) -> None:
    """Before the gate, which may take minutes. Raises BadConfiguration inside the package, BadParameter where nothing
    can be written."""
    from draftmill.dflash.gate_files import is_folder

    try:
        inside = is_folder(Path(package)) and folder.resolve().is_relative_to(Path(package).resolve())
        if not inside:
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise typer.BadParameter(
            f"nothing can be written into {folder} ({reason}); name another folder", param_hint="--report"
        ) from None
    if inside:
        raise BadConfiguration(
            f"{folder} is inside the package, where nothing is written; name another folder.", code="cli.report_folder"
        )


def _write_report(folder: Path, gate: dict[str, Any], package: str) -> None:
    from draftmill.reports.gate_files import write_gate

    try:
        write_gate(folder, gate, package)
    except OSError as error:
        raise InputOutput(
            f"The report could not be written into {folder} ({error.strerror or error}); look at the disk, or name "
            "another folder.",
            code="cli.report",
        ) from error


def _ending(error: MillError) -> dict[str, Any]:
    if isinstance(error, Refused):
        return {"verdict": "refused", "refusals": [refusal.as_json() for refusal in error.refusals]}
    return {"verdict": "failed", "code": error.code, "error": str(error)}


def show(gate: dict[str, Any], package: str) -> None:
    """The checks as a table, then the reasons and the remarks in full, then the verdict."""
    console = printer(soft_wrap=False)
    table = Table("check", "verdict", "evidence", title=plain(package), title_justify="left")
    for check in gate["checks"]:
        if check["verdict"] in ("not applicable", "not run"):
            continue
        colour = COLOURS[check["verdict"]]
        table.add_row(plain(check["title"]), f"[{colour}]{check['verdict']}[/]", plain(check["evidence"]))
    console.print(table)
    for check in gate["checks"]:
        for refusal in check["refusals"]:
            tell(console, check["id"], refusal)
    for why, checks in _not_run(gate["checks"]).items():
        console.print(f"[dim]{plain(why)}:[/] {', '.join(checks)}", soft_wrap=True)
    for remark in gate["remarks"]:
        console.print(f"[yellow]remark[/] {plain(remark['where'])}: {plain(remark['sentence'])}", soft_wrap=True)
    skipped = sum(check["verdict"] == "not applicable" for check in gate["checks"])
    said = f" ({skipped} do not apply)" if skipped else ""
    console.print(f"[{COLOURS[gate['verdict']]}]{gate['verdict']}[/]: {plain(gate['sentence'])}{said}", soft_wrap=True)


def _not_run(checks: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Why -> which checks."""
    found: dict[str, list[str]] = {}
    for check in checks:
        if check["verdict"] == "not run":
            found.setdefault(check["evidence"], []).append(check["id"])
    return found


def _selftest(as_json: bool) -> int:
    from draftmill.dflash.selftest import run_selftest

    with progress_bar(count_bytes=False) as progress:
        result = run_selftest(progress=progress)
    if as_json:
        typer.echo(json.dumps(result.as_json()))
        return PASS if result.passed else REFUSED
    console = printer(soft_wrap=False)
    table = Table("check", "spoiled package", "of", "verdict", "caught by", title="self-test", title_justify="left")
    for row in result.rows:
        caught = "[green]only it[/]" if row.sound else f"[red]{', '.join(row.caught) or 'nothing'}[/]"
        table.add_row(row.check, plain(row.what), row.base, row.verdict, caught)
    console.print(table)
    for check in result.uncontrolled:
        console.print(f"[red]{check} has no control: nothing shows that it catches anything[/]")
    for base, caught_by in result.unsound.items():
        console.print(f"[red]the sound package of {base} does not pass: {', '.join(caught_by)}[/]")
    checks = {row.check for row in result.rows}
    colour, verdict = ("green", "pass") if result.passed else ("red", "fail")
    console.print(f"[{colour}]{verdict}[/]: {len(result.rows)} controls for {len(checks)} checks")
    return PASS if result.passed else REFUSED
