"""`draftmill measure`: what a drafter is worth on this device, with the evidence, or why nothing can be said."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from draftmill.cli.dflash_forward import Causal, PackedOption, Rule, one_of
from draftmill.cli.ending import ending
from draftmill.cli.given import refuse_given
from draftmill.cli.measure_cross import cross, finish_cross, is_cross, write_cross_into
from draftmill.cli.measure_options import (
    OF_A_FILE,
    AsJson,
    Budget,
    Context,
    DeviceName,
    Devices,
    Draft,
    Drafter,
    Engine,
    Fallback,
    Form,
    Kind,
    LibraryPath,
    NMax,
    NMin,
    PMin,
    PromptFiles,
    Publish,
    Quick,
    ReportFolder,
    Runner,
    Seed,
    Target,
    TargetDtype,
    TargetOrFolder,
    Threads,
    TorchDevice,
    Wait,
    Work,
)
from draftmill.cli.measure_running import finish, load_report, measure, write_into
from draftmill.cli.retrieval import Store
from draftmill.configuration import DEFAULT_STORE, config_path

app = typer.Typer(no_args_is_help=True, help="Measure what a drafter is worth on a device: speed, and acceptance.")
app.command()(cross)

QUICK_PAIRS = 8

OF_PUBLISHING = ("store", "work", "runner")
OF_ENGINES = ("engine", "library_path", "n_max", "n_min", "p_min", "context", "seed")
OF_THE_LOOP = ("dtype", "torch_device", "weights", "window", "causal", "fallback")

SERVERS = {"auto": None, "both": True, "one": False}


@app.command()
def speed(
    call: typer.Context,
    target: Target,
    draft: Draft,
    device: DeviceName = "cpu",
    devices: Devices = None,
    engine: Engine = None,
    library_path: LibraryPath = None,
    prompts: PromptFiles = None,
    kind: Kind = None,
    quick: Quick = False,
    form: Form = "auto",
    pairs: Annotated[
        int | None, typer.Option(min=1, help="Pairs of requests. Default: one a prompt; 8 with --quick.")
    ] = None,
    budget: Budget = 128,
    n_max: NMax = 4,
    n_min: NMin = 0,
    p_min: PMin = 0.0,
    spec_type: Annotated[str, typer.Option(help="The engine's word for how to speculate; none: not at all.")] = (
        "draft-simple"
    ),
    threads: Threads = None,
    context: Context = 2048,
    seed: Seed = 0,
    warm_up: Annotated[int, typer.Option(min=0, help="Requests of each arm that are discarded.")] = 2,
    servers: Annotated[
        Literal["auto", "both", "one"], typer.Option(help="Both arms' servers up at once, or one at a time.")
    ] = "auto",
    report: ReportFolder = None,
    as_json: AsJson = False,
    wait: Wait = 0,
    publish: Publish = False,
    store: Store = DEFAULT_STORE,
    work: Work = Path("mill-work"),
    runner: Runner = "process",
) -> None:
    """Target alone against target + draft, request by request in one run: the ratio, its interval and a verdict.

    Ends with 0 for faster, slower or no difference, 3 for no verdict, 1 where the draft was never used, changed the
    text, or something broke.
    """
    _check_gates(n_min, n_max)
    _check_publishing(call, publish)
    with ending(as_json):
        asked = _request(
            device, devices, engine, library_path, prompts, kind, quick,
            what="speed", form=form, pairs=pairs or (QUICK_PAIRS if quick else None), budget=budget, n_max=n_max,
            n_min=n_min, p_min=p_min, spec_type=spec_type, threads=threads, context=context, seed=seed,
            warm_up=warm_up, together=SERVERS[servers],
        )  # fmt: skip
        measure(asked, target, draft, report, as_json, wait, publish, store, work, runner)


@app.command()
def acceptance(
    call: typer.Context,
    target: TargetOrFolder,
    draft: Drafter,
    route: Annotated[
        Literal["counters", "token-exact"] | None,
        typer.Option(
            help="The engine's own counters (default), or every draft held to the target's own greedy text (always so "
            "with a target's folder)."
        ),
    ] = None,
    device: DeviceName = "cpu",
    devices: Devices = None,
    engine: Engine = None,
    library_path: LibraryPath = None,
    prompts: PromptFiles = None,
    kind: Kind = None,
    quick: Quick = False,
    form: Form = "auto",
    budget: Budget = 128,
    n_max: NMax = 4,
    n_min: NMin = 0,
    p_min: PMin = 0.0,
    threads: Threads = None,
    context: Context = 2048,
    seed: Seed = 0,
    dtype: TargetDtype = "float32",
    torch_device: TorchDevice = "cpu",
    weights: PackedOption = "decoded",
    window: Rule = "exclusive",
    causal: Causal = None,
    fallback: Fallback = None,
    report: ReportFolder = None,
    as_json: AsJson = False,
    wait: Wait = 0,
    publish: Publish = False,
    store: Store = DEFAULT_STORE,
    work: Work = Path("mill-work"),
    runner: Runner = "process",
) -> None:
    """How many of the draft's tokens the target accepts, by one of two routes whose figures never mix.

    With a Hugging Face folder as target, DRAFT is a DFlash package or checkpoint, and the mill's own loop runs the two;
    --dtype, --torch-device, --weights, --window, --causal and --fallback are of this loop only; --engine,
    --library-path, --n-max, --n-min, --p-min, --context and --seed are of engines only.
    """
    _check_publishing(call, publish)
    loop = None
    if target.is_dir() or draft.is_dir():
        loop = _loop(target, draft, route, dtype, torch_device, weights, window, causal, fallback)
        refuse_given(call, OF_ENGINES, "belongs to an engine, and the mill's own loop runs this draft; leave it away")
        route = "token-exact"
    else:
        refuse_given(call, OF_THE_LOOP, "belongs to the mill's own loop, whose target is a Hugging Face folder")
    route = route or "counters"
    _check_gates(n_min, n_max)
    if route == "token-exact" and (n_min or p_min):
        raise typer.BadParameter("gates (--n-min, --p-min) belong to --route counters: token-exact offers every draft")
    with ending(as_json):
        asked = _request(
            device, devices, engine, library_path, prompts, kind, quick,
            what="acceptance", route=route, form=form, budget=budget, n_max=n_max, n_min=n_min, p_min=p_min,
            threads=threads, context=context, seed=seed, loop=loop,
        )  # fmt: skip
        measure(asked, target, draft, report, as_json, wait, publish, store, work, runner)


@app.command()
def show(
    report: Annotated[Path, typer.Argument(help="A report.json.")],
    into: ReportFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show a report again; every figure is computed anew from its samples."""
    with ending(as_json):
        record = load_report(report, cross=True)
        tell, write = (finish_cross, write_cross_into) if is_cross(record) else (finish, write_into)
        if into:
            write(into, record)
        raise typer.Exit(tell(record, as_json))


@app.command()
def compare(
    one: Annotated[Path, typer.Argument(help="A report.json of measure speed.")],
    other: Annotated[Path, typer.Argument(help="Another, of the same regime.")],
    by: Annotated[str, typer.Option(help="ratio; whatever is no ratio inside one run is refused.")] = "ratio",
) -> None:
    """Two runs side by side, where their regimes are the same. Their tokens per second never compare."""
    from draftmill.measurement.comparison import compare as compare_records

    for path, sentence in zip((one, other), compare_records(load_report(one), load_report(other), by), strict=True):
        typer.echo(f"{path}: {sentence}")


def _loop(
    target: Path,
    draft: Path,
    route: str | None,
    dtype: str,
    torch_device: str,
    weights: str,
    window: str,
    causal: bool | None,
    fallback: float | None,
) -> Any:
    from draftmill.dflash.forward import WindowRule
    from draftmill.measurement.record import LoopOptions

    if not target.is_dir():
        raise typer.BadParameter(
            f"{target} is no folder: a DFlash draft's folder is measured on a Hugging Face target's",
            param_hint="--target",
        )
    if draft.is_file() and draft.open("rb").read(4) != b"GGUF":
        raise typer.BadParameter(f"{draft} is neither a draft's folder nor a GGUF file", param_hint="--draft")
    if route == "counters":
        raise typer.BadParameter("the own loop judges every draft itself: token-exact", param_hint="--route")
    one_of("--weights", weights, ("decoded", "packed"))
    one_of("--window", window, tuple(WindowRule))
    return LoopOptions(
        dtype=dtype,  # type: ignore[arg-type]
        torch_device=torch_device,
        packed=weights == "packed",
        window_rule=WindowRule(window),
        causal=causal,
        fallback=fallback,
    )


def _check_gates(n_min: int, n_max: int) -> None:
    if n_min > n_max:
        raise typer.BadParameter(f"{n_min} is above --n-max {n_max}: nothing would be drafted", param_hint="--n-min")


def _check_publishing(call: typer.Context, publish: bool) -> None:
    if not publish:
        refuse_given(call, OF_PUBLISHING, "belongs to the pipeline, which publishes: add --publish, or leave it away")


def _request(
    device: str,
    devices: Path | None,
    engine: Path | None,
    library_path: list[Path] | None,
    prompts: list[Path] | None,
    kind: list[str] | None,
    quick: bool,
    **asked: Any,
) -> Any:
    from draftmill.measurement.device.profiles import find_device
    from draftmill.measurement.request import MeasurementRequest, asked_prompts, new_run

    profile = find_device(devices, device)
    if library_path and not engine:
        raise typer.BadParameter(OF_A_FILE, param_hint="--library-path")
    if engine:
        if not engine.is_file():
            raise typer.BadParameter(f"{engine} is no file; name a llama-server by its path", param_hint="--engine")
        own = {
            "llama_server": os.path.abspath(engine),
            "library_path": [os.path.abspath(each) for each in library_path or ()],
        }
        profile = type(profile).model_validate(profile.model_dump(mode="json") | {"engine": own})
    chosen = chosen_prompts(prompts, kind, quick)
    return MeasurementRequest(
        run=new_run(),
        device=profile,
        prompts=asked_prompts(chosen),
        **asked,
    )


def chosen_prompts(prompts: list[Path] | None, kind: list[str] | None, quick: bool) -> tuple[Any, ...]:
    """The prompts of the files, of these kinds or one alone, in the order in which they run."""
    from draftmill.measurement.prompts import interleaved, load_prompts
    from draftmill.measurement.prompts import quick as one_prompt

    found = load_prompts(prompts or [config_path("prompts")])
    if kind:
        kinds = [each.lower() for each in kind]
        if unknown := [each for each in kinds if each not in found.kinds]:
            raise typer.BadParameter(
                f"no prompt is of kind {', '.join(unknown)}; there are {', '.join(found.kinds)}", param_hint="--kind"
            )
        found = type(found)(tuple(prompt for prompt in found.prompts if prompt.kind in kinds))
    chosen = one_prompt(found) if quick else interleaved(found)
    return tuple(chosen.prompts)
