"""The flow `measure_pair`: what a draft is worth to a target on one device, and the report into the store.

preflight -> (the device's queue) measure_speed or measure_acceptance -> publish reports/measure/<run>/ -> index

Nothing is taken from the job cache: a measurement is of the hour it was made in.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State
from pydantic import BaseModel, ConfigDict

from draftmill.digest import sha256_file
from draftmill.host import total_memory
from draftmill.outcome import BadConfiguration, MillError
from draftmill.store.index_measurement import index_measurement
from draftmill.store.interface import Store
from draftmill.store.opening import open_store
from draftmill.store.probe import ready_store
from flows.asked_measurement import whole_request
from flows.cache import MEASURED, JobCache
from flows.chain import Chain, Done, Input, Step
from flows.convert_model import run_job
from flows.defaults import runner_field, store_field, work_field
from flows.device_queue import device_queue
from flows.display import DISPLAY, progress_of
from flows.runners.choice import make_runner
from flows.runners.runner import GIB, Limits

RECORD = "report.json"
"""Published last, since it commits the others."""
PREFLIGHT = Limits(memory_bytes=1 * GIB, timeout_s=120)


class MeasureOrder(BaseModel):
    """target, draft: GGUF files on this host, or a Hugging Face target's folder and a DFlash draft's. request: what
    `asked_measurement` makes a MeasurementRequest of. wait_s: for a held device."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: dict[str, Any]
    target: Path
    draft: Path
    store: str = store_field()
    work: Path = work_field()
    runner: Literal["process", "docker"] = runner_field()
    wait_s: float = 0


class Measurement(BaseModel):
    """How it ended. report: the bytes of report.json. places: name -> where it is in the store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    word: str
    sentence: str
    report: bytes
    places: dict[str, str]

    def markdown(self, title: str) -> str:
        """For the Prefect UI."""
        return "\n".join([f"# {title}: {self.word}", "", self.sentence, "", *self.places.values()])


@flow(name="measure_pair", persist_result=False)
def measure_pair(order: dict[str, Any]) -> State[Measurement]:
    """`order` is a MeasureOrder as JSON. A result of any word completes; a refused pair, and a failure, raise."""
    given = MeasureOrder.model_validate(order)
    ending = _measure(given)
    title = f"{given.target.name} <- {given.draft.name}"
    create_markdown_artifact(ending.markdown(title), key="measurement", description=title)
    return Completed(name=ending.word.capitalize(), message=ending.sentence, data=ending)


def _measure(order: MeasureOrder) -> Measurement:
    request = whole_request(order.request)
    for slot, path in _files(order):
        if not path.exists():
            raise BadConfiguration(
                f"the {slot} {path} is not where this runs: put it on that host, in a folder that the worker sees.",
                code="measure.files",
                where=str(path),
            )
    device = request.device
    store = open_store(order.store)
    ready_store(store, order.work / "probes")
    chain = Chain(make_runner(order.runner, device), JobCache(order.work))
    subject = f"{order.target.name} <- {order.draft.name}"
    profile = device.model_dump(mode="json")
    _run(
        chain,
        Step("preflight", f"preflight {device.name}", subject, {"device": profile}, limits=PREFLIGHT, cached=False),
    )
    staged = order.work / MEASURED / request.run
    try:
        inputs = {slot: Input(stage(path, staged / slot), None) for slot, path in _files(order)}
        step = Step(
            f"measure_{request.what}",
            f"measure {request.what} of {subject}",
            subject,
            {
                "request": request.model_dump(mode="json"),
                "target_file": _name(order.target),
                "draft_file": _name(order.draft),
                "wait_s": order.wait_s,
            },
            inputs,
            limits=Limits(memory_bytes=total_memory(), pids=1024, timeout_s=6 * 3600),
            cached=False,
        )
        progress = progress_of(DISPLAY.get(), step.title)
        with device_queue(device, run=request.run, wait_s=order.wait_s, progress=progress):
            done = _run(chain, step)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    places = publish_report(store, request.run, done.finished.out)
    index_report(store, request.run)
    facts = done.facts
    return Measurement(
        word=facts["word"],
        sentence=facts["sentence"],
        report=(done.finished.out / RECORD).read_bytes(),
        places=places,
    )


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_report(store: Store, run: str, folder: Path) -> dict[str, str]:
    """The report's files below reports/measure/<run>/, none of which is ever replaced."""
    store.sweep()
    places = {}
    for name in sorted((path.name for path in folder.iterdir()), key=lambda name: (name == RECORD, name)):
        key = f"reports/measure/{run}/{name}"
        store.create(key, folder / name, sha256_file(folder / name))
        places[name] = store.where(key)
    return places


@task(cache_policy=NO_CACHE, persist_result=False)
def index_report(store: Store, run: str) -> None:
    """Where the index cannot be changed the report stands all the same, and `draftmill store index` finds it."""
    try:
        index_measurement(store, f"reports/measure/{run}/{RECORD}")
    except MillError as error:
        get_run_logger().warning("the index does not name this report yet: %s", error)


def _run(chain: Chain, step: Step) -> Done:
    return run_job.with_options(task_run_name=step.title)(chain, step)


def _files(order: MeasureOrder) -> tuple[tuple[str, Path], ...]:
    return ("target", order.target), ("draft", order.draft)


def _name(path: Path) -> str:
    """A file's own name; a folder's is that of where it really is, so that "." has one."""
    return path.resolve().name if path.is_dir() else path.name


def stage(path: Path, folder: Path, name: str = "") -> Path:
    """A folder with this file or folder alone: what lies beside it is not the job's business. Links where possible.

    name: what it is called there, its own name unless given.
    """
    folder.mkdir(parents=True)
    place = folder / (name or _name(path))
    if path.is_dir():
        place.mkdir()
        for each in path.iterdir():
            if each.is_file():
                _link(each, place / each.name)
    else:
        _link(path, place)
    return folder


def _link(path: Path, place: Path) -> None:
    with suppress(OSError):
        os.link(path.resolve(), place)
    if not place.exists():
        shutil.copyfile(path, place)
