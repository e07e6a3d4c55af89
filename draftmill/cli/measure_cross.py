"""`draftmill measure cross`: one draft and target by every loop at hand, each round side by side."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from draftmill.cli.dflash_forward import Causal, PackedOption, Rule, one_of
from draftmill.cli.ending import ending
from draftmill.cli.folder import file_path, folder
from draftmill.cli.given import refuse_given
from draftmill.cli.measure_options import (
    OF_A_FILE,
    AsJson,
    DeviceName,
    Devices,
    Form,
    Kind,
    LibraryPath,
    PromptFiles,
    Quick,
    ReportFolder,
    TargetDtype,
    TorchDevice,
    Wait,
    Work,
)

EXITS = {"agree": 0, "explained": 0, "no verdict": 3, "unexplained": 1, "diverged": 1}


OF_ENGINES = ("target_gguf", "drafter_gguf", "draft_outtype", "kv", "p_min", "library_path")


def cross(
    call: typer.Context,
    drafter: Annotated[
        Path,
        typer.Option(
            "--drafter",
            "--draft",
            parser=file_path,
            metavar="PATH",
            help="A package, a checkpoint or a GGUF draft.",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path,
        typer.Option(parser=folder, metavar="FOLDER", help="The target's Hugging Face folder.", show_default=False),
    ],
    target_gguf: Annotated[
        Path | None,
        typer.Option(parser=file_path, metavar="FILE", help="The same target for engines; else it is made."),
    ] = None,
    drafter_gguf: Annotated[
        Path | None, typer.Option(parser=file_path, metavar="FILE", help="The same draft for engines; else it is made.")
    ] = None,
    draft_outtype: Annotated[
        Literal["f32", "stored"],
        typer.Option(help="A draft's GGUF that is made: every weight in float32, or the codes that are stored."),
    ] = "f32",
    prompts: PromptFiles = None,
    kind: Kind = None,
    quick: Quick = False,
    max_new: Annotated[int, typer.Option("--max-new", "--budget", min=8, help="New tokens an answer.")] = 96,
    form: Form = "auto",
    device: DeviceName = "cpu",
    devices: Devices = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="xllamacpp|FILE|none",
            help="An engine in place of the device's own: the package, or a llama-server's path; may be given again.",
        ),
    ] = None,
    library_path: LibraryPath = None,
    kv: Annotated[Literal["f32", "f16", "bf16"], typer.Option(help="The engines' cached keys and values.")] = "f32",
    p_min: Annotated[float, typer.Option(min=0, max=1, help="The engines' gate; the own loop has none.")] = 0.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each loop. Default: what torch takes.")] = None,
    near_tie: Annotated[
        float, typer.Option(min=1e-9, help="Greatest gap of two logits that counts as undecided.")
    ] = 0.05,
    dtype: TargetDtype = "float32",
    torch_device: TorchDevice = "cpu",
    weights: PackedOption = "decoded",
    window: Rule = "exclusive",
    causal: Causal = None,
    report: ReportFolder = None,
    as_json: AsJson = False,
    wait: Wait = 0,
    work: Work = Path("mill-work"),
) -> None:
    """The same draft, target and prompts by the mill's own loop, an engine's, and transformers': where do they depart?

    Each route's rounds are listed side by side, and the first that departs is explained with its evidence, or said to
    be unexplained. Routes that are not available say why. Ends with 0 where all agree or every departure has its
    reason, 1 for an unexplained one or text that the own loop changed, 3 where no other route ran.
    """
    from draftmill.cli.measure_running import ended_by_signals, ready
    from draftmill.dflash.forward import WindowRule
    from draftmill.measurement.cross import Pair, measure_cross
    from draftmill.measurement.cross_files import check_same_draft
    from draftmill.measurement.cross_record import CrossOptions
    from draftmill.measurement.device.lock import device_lock
    from draftmill.measurement.device.preflight import preflight
    from draftmill.measurement.record import LoopOptions
    from draftmill.measurement.request import new_run

    for option, place in (("--target-gguf", target_gguf), ("--drafter-gguf", drafter_gguf)):
        if place and not place.is_file():
            raise typer.BadParameter(f"{place} is no file", param_hint=option)
    if not target.is_dir():
        raise typer.BadParameter(
            f"{target} is no folder; the own loop runs a Hugging Face folder", param_hint="--target"
        )
    if engine == ["none"]:
        refuse_given(call, OF_ENGINES, "belongs to an engine, and --engine none runs none; leave it away")
    if drafter_gguf or drafter.is_file():
        refuse_given(call, ("draft_outtype",), "is of a GGUF that is made of the draft, and one is given")
    if library_path and not any(each not in ("none", "xllamacpp") for each in engine or ()):
        raise typer.BadParameter(OF_A_FILE, param_hint="--library-path")
    one_of("--weights", weights, ("decoded", "packed"))
    one_of("--window", window, tuple(WindowRule))
    if report:
        ready(report)
    from draftmill.cli.bar import progress_bar
    from draftmill.cli.measure import chosen_prompts

    with ending(as_json):
        # Before a device is waited for.
        if drafter_gguf:
            check_same_draft(drafter, drafter_gguf, causal)
        profile, engines = _engines(devices, device, engine, library_path)
        chosen = chosen_prompts(prompts, kind, quick)
        run = new_run()
        loop = LoopOptions(
            dtype=dtype,
            torch_device=torch_device,
            packed=weights == "packed",
            window_rule=WindowRule(window),
            causal=causal,
        )
        options = CrossOptions(
            near_tie=near_tie, kv=kv, p_min=p_min, threads=threads, draft_outtype=draft_outtype
        )  # fmt: skip
        pair = Pair(drafter, target, work / "cross", target_gguf, drafter_gguf)
        with (
            progress_bar(count_bytes=False) as progress,
            ended_by_signals(),
            device_lock(profile, run=run, wait_s=wait, progress=progress),
        ):
            preflight(profile).check()
            record = measure_cross(
                pair, chosen, loop, options, run=run, budget=max_new, form=form, engines=engines, progress=progress
            )
        code = finish_cross(record, as_json)
        if report:
            write_cross_into(report, record)
    raise typer.Exit(code)


def _engines(
    devices: Path | None, device: str, engine: list[str] | None, library_path: list[Path] | None
) -> tuple[Any, list[tuple[str, Any]]]:
    """The device that is held, and route -> its device with that route's engine."""
    from draftmill.measurement.device.profiles import find_device

    profile = find_device(devices, device)
    if engine is None:
        own = profile.engine
        return profile, [(own if isinstance(own, str) else "llama-server", profile)]
    found: list[tuple[str, Any]] = []
    for each in engine:
        if each == "none":
            continue
        if each == "xllamacpp":
            told: Any = each
        elif Path(each).is_file():
            told = {
                "llama_server": os.path.abspath(each),
                "library_path": [os.path.abspath(one) for one in library_path or ()],
            }
        else:
            raise typer.BadParameter(f"{each} is no file, nor xllamacpp or none", param_hint="--engine")
        value = profile.model_dump(mode="json") | {"engine": told}
        name = each if each == "xllamacpp" else "llama-server"
        same = sum(known.startswith(name) for known, _ in found)
        found.append((f"{name} {same + 1}" if same else name, type(profile).model_validate(value)))
    return profile, found


def finish_cross(record: Any, as_json: bool) -> int:
    """Prints the record and returns the exit code for it."""
    from draftmill.cli.measure_table import COLOURS, columns
    from draftmill.cli.telling import printer
    from draftmill.measurement.cross_results import cross_result
    from draftmill.reports.acceptance_sections import groups_table
    from draftmill.reports.cross_report import TONES, cross_json
    from draftmill.reports.cross_sections import departure_line, sides_table
    from draftmill.reports.visible import visible

    result = cross_result(record)
    if as_json:
        typer.echo(cross_json(record))
        return EXITS[result.word]
    console = printer(soft_wrap=False)
    console.print(columns(sides_table(result)))
    console.print(columns(groups_table("All prompts, by route", "route", result.whole)))
    for each in record.departures:
        console.print(Text(visible(departure_line(each))), soft_wrap=True)
    for each in record.absent:
        console.print(Text.assemble(("did not run", "yellow"), f" {visible(each.name)}: {visible(each.reason)}"))
    said = Text(visible(f"{result.word}: {result.sentence}"))
    said.stylize(COLOURS[TONES[result.word]], 0, len(result.word))
    console.print(said, soft_wrap=True)
    return EXITS[result.word]


def is_cross(record: Any) -> bool:
    return bool(record.what == "cross")


def write_cross_into(place: Path, record: Any) -> None:
    from draftmill.cli.measure_running import report_written
    from draftmill.reports.cross_report import write_cross

    with report_written(place):
        write_cross(place, record)
