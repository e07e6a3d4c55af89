"""`./mill demo`: a real small model through the whole mill, then measured on this machine against a slow target."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from draftmill.cli.measure_table import show as show_measurement
from draftmill.cli.telling import printer
from draftmill.configuration import DEFAULT_STORE, config_path
from draftmill.host import cores
from draftmill.hub.server import serve
from draftmill.measurement.device.profiles import CPU
from draftmill.measurement.prompts import load_prompts, quick
from draftmill.measurement.record import load
from draftmill.measurement.request import MeasurementRequest, asked_prompts, new_run
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress
from draftmill.store.opening import open_store
from draftmill.store.reading import fetch
from flows.commands import AsJson, Explain, Runner, Store, Work, ensure_images, exit_as, jobs_of, show
from flows.demo import smollm2
from flows.demo.wide_target import build_pair
from flows.display import Display, progress_of, shown
from flows.order import Ending, Order
from flows.prefect_server import prefect_server

T = TypeVar("T")
DRAFT_QUANT = "Q8_0"
PAIRS, BUDGET = 6, 24


def demo(
    runner: Runner = "process",
    store: Store = DEFAULT_STORE,
    work: Work = Path("mill-work"),
    measuring: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Whether what was published is then measured.")
    ] = True,
    explain: Explain = False,
    as_json: AsJson = False,
) -> None:
    """A real small model through the whole mill: weights published without a tokenizer, from a hub on loopback.

    What it publishes is then the draft of a slow target that computes the same: the measurement ends in a report.
    """
    inputs = os.environ.get("MILL_INPUTS")
    if not inputs:
        raise BadConfiguration("the demo's model comes with ./mill demo: run it so", code="demo.inputs")
    work = work.absolute()
    with shown(explain) as display:
        gguf = smollm2.find_gguf(Path(inputs))
        _made(
            display,
            "rebuild SmolLM2-135M-Instruct",
            lambda progress: smollm2.build_hub(gguf, work / "demo-hub", progress),
        )
        target = _slow_target(display, gguf, work) if measuring else None
        if runner == "docker":
            order = Order(ref=smollm2.DRAFT, runner=runner)
            ensure_images([*jobs_of(order), *([("measure_speed", {})] if measuring else [])], display)
    with serve(work / "demo-hub") as hub, prefect_server(work):
        order = Order(
            ref=smollm2.DRAFT,
            tokenizer_from=smollm2.DONOR,
            quants=("Q4_K_M", DRAFT_QUANT),
            runner=runner,
            store=store,
            work=work,
            hub=hub.endpoint,
        )
        ending, measured = _run(order, target, explain)
    if as_json:
        report = json.loads(measured.report) if measured else None
        typer.echo(json.dumps(ending.model_dump(mode="json") | {"measurement": report}, indent=1))
    else:
        show(ending)
        if measured:
            show_measurement(load(measured.report), printer(soft_wrap=False))
            typer.echo(f"report {measured.places['report.html']}")
    exit_as(ending)


def _made(display: Display, title: str, make: Callable[[Progress], T]) -> T:
    display.started(title, "the demo's model")
    made = make(progress_of(display, title))
    display.ended(title, "ok")
    return made


def _slow_target(display: Display, gguf: Path, work: Path) -> Path:
    return _made(
        display, "widen it into a slow target", lambda progress: build_pair(gguf, work / "demo-pair", progress).target
    )


def _run(order: Order, target: Path | None, explain: bool) -> tuple[Ending, Any]:
    """The conversion's ending, and the measurement's where something was published and there is a target."""
    from flows.convert_model import convert_model
    from flows.measure_pair import MeasureOrder, measure_pair

    with shown(explain):
        state: Any = convert_model(order.model_dump(mode="json"), return_state=True)
        ending: Ending = state.result()
        if not ending.manifest or target is None:
            return ending, None
        with tempfile.TemporaryDirectory(dir=order.work, prefix="demo-draft-") as folder:
            draft = _fetched(order.store, ending.manifest, Path(folder))
            asked = MeasureOrder(
                request=_request().model_dump(mode="json"),
                target=target,
                draft=draft,
                store=order.store,
                work=order.work,
                runner=order.runner,
            )
            measured: Any = measure_pair(asked.model_dump(mode="json"), return_state=True)
            return ending, measured.result()


def _request() -> MeasurementRequest:
    """Half of the cores: what else runs on this machine then disturbs little."""
    prompts = quick(load_prompts(config_path("prompts"))).prompts
    return MeasurementRequest(
        what="speed",
        run=new_run(),
        device=CPU,
        prompts=asked_prompts(prompts),
        pairs=PAIRS,
        budget=BUDGET,
        threads=max(1, cores() // 2),
        warm_up=1,
    )


def _fetched(store: str, manifest: dict[str, Any], folder: Path) -> Path:
    """The published draft as whoever pulls it gets it, verified against the manifest."""
    from draftmill.store.manifest import Manifest

    known = Manifest.model_validate_json(json.dumps(manifest))
    file = next(each for each in known.files if each.path.endswith(f"-{DRAFT_QUANT}.gguf"))
    fetch(open_store(store), known.key_of(file.path), folder / file.path, sha256=file.sha256, size=file.size)
    return folder / file.path
