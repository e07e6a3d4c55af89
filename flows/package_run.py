"""A package on its target, between gate and publication: the measuring job, and both verdicts in one."""

import shutil
from pathlib import Path
from typing import Any

from draftmill.host import total_memory
from draftmill.measurement.gate_run import not_run, with_run, without_run
from draftmill.measurement.record import load
from draftmill.measurement.request import MeasurementRequest
from draftmill.measurement.subject import describe_folder
from draftmill.outcome import BadConfiguration, Refusal, Refused
from flows.asked_measurement import whole_request
from flows.cache import MEASURED, JobCache
from flows.chain import Chain, Done, Input, JobEnded, Step
from flows.convert_model import run_job
from flows.device_queue import device_queue
from flows.display import DISPLAY, progress_of
from flows.measure_pair import RECORD, stage
from flows.order import Order
from flows.runners.choice import make_runner
from flows.runners.runner import Limits
from jobs.contract import Result


def asked_of_run(order: Order) -> dict[str, Any]:
    """What a run's outcome depends on beside the package: the request without its name, and the target's digest."""
    request, target = _given(order)
    told = request.model_dump(mode="json", exclude={"run", "device"})
    return told | {"target": describe_folder(target, None).sha256}


def run_package(order: Order, entry: str, gate: dict[str, Any], package: Done) -> tuple[dict[str, Any], Result | None]:
    """The gate's content with the run's, and the job's result; None where the gate does not pass it.

    Raises JobEnded where the job broke, and what the device's queue raises.
    """
    if gate["verdict"] != "pass":
        return not_run(gate), None
    request, target = _given(order)
    chain = Chain(make_runner(order.runner, request.device), JobCache(order.work))
    staged = order.work / MEASURED / request.run
    name = entry.rpartition("/")[2]
    try:
        inputs = {
            "target": Input(stage(target, staged / "target"), None),
            "draft": Input(stage(package.finished.out, staged / "draft", name), None),
        }
        step = Step(
            f"measure_{request.what}",
            f"run {order.ref} on {target.resolve().name}",
            order.ref,
            {
                "request": request.model_dump(mode="json"),
                "target_file": target.resolve().name,
                "draft_file": name,
            },
            inputs,
            limits=Limits(memory_bytes=total_memory(), pids=1024, timeout_s=6 * 3600),
            cached=False,
        )
        progress = progress_of(DISPLAY.get(), step.title)
        with device_queue(request.device, run=request.run, wait_s=0, progress=progress):
            done = run_job.with_options(task_run_name=step.title)(chain, step)
    except JobEnded as ended:
        if ended.result.outcome != "refused":
            raise
        refusals = [Refusal(**each.model_dump()) for each in ended.result.refusals]
        return without_run(gate, target.resolve().name, Refused(*refusals)), ended.result
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    record = load((done.finished.out / RECORD).read_bytes())
    return with_run(gate, record), done.finished.result  # type: ignore[arg-type]


def _given(order: Order) -> tuple[MeasurementRequest, Path]:
    if order.run is None or order.run_target is None:
        raise BadConfiguration("a run needs its request and its target", code="validate.run")
    return whole_request(order.run), order.run_target
