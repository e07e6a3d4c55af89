"""`draftmill validate --run`: the package on a target after the gate, both in one verdict and one report."""

from pathlib import Path
from typing import Any

import typer

from draftmill.cli.bar import progress_bar
from draftmill.cli.given import refuse_given
from draftmill.outcome import Refused

OF_THE_RUN = ("target", "prompts", "quick", "max_new", "dtype", "torch_device")


def check_run_options(call: typer.Context, run: bool, target: Path | None) -> None:
    """Raises BadParameter."""
    if run and target is None:
        raise typer.BadParameter("--run needs the target that the package is run on", param_hint="--target")
    if not run:
        refuse_given(call, OF_THE_RUN, "belongs to --run")
    if target is not None and not target.is_dir():
        raise typer.BadParameter(
            f"{target} is no folder; the package is run on a Hugging Face target's folder", param_hint="--target"
        )


def asked_run(prompts: list[Path] | None, quick: bool, max_new: int, dtype: str, torch_device: str) -> Any:
    """A `MeasurementRequest` of the own loop. Raises what reading the prompts raises."""
    from draftmill.cli.measure import chosen_prompts
    from draftmill.measurement.device.profiles import CPU
    from draftmill.measurement.record import LoopOptions
    from draftmill.measurement.request import MeasurementRequest, asked_prompts, new_run

    return MeasurementRequest(
        what="acceptance",
        route="token-exact",
        run=new_run(),
        device=CPU,
        prompts=asked_prompts(chosen_prompts(prompts, None, quick)),
        budget=max_new,
        loop=LoopOptions(dtype=dtype, torch_device=torch_device),  # type: ignore[arg-type]
    )


def run_after(gate: dict[str, Any], package: Path, target: Path, asked: Any, wait: int = 0) -> dict[str, Any]:
    """The gate's value with the run's. Nothing is run where the gate does not pass."""
    from draftmill.cli.measure_running import ended_by_signals
    from draftmill.measurement.device.lock import device_lock
    from draftmill.measurement.device.preflight import preflight
    from draftmill.measurement.gate_run import not_run, with_run, without_run
    from draftmill.measurement.request import perform

    if gate["verdict"] != "pass":
        return not_run(gate)
    with (
        progress_bar(count_bytes=False) as progress,
        ended_by_signals(),
        device_lock(asked.device, run=asked.run, wait_s=wait, progress=progress),
    ):
        preflight(asked.device).check()
        try:
            record = perform(asked, target, package, progress)
        except Refused as error:
            return without_run(gate, target.resolve().name, error)
    return with_run(gate, record)  # type: ignore[arg-type]  # asked_run asks for acceptance


def show_run(gate: dict[str, Any]) -> None:
    """The run's tables and its sentence; the gate's own follow."""
    from draftmill.cli.measure_table import show
    from draftmill.cli.telling import printer
    from draftmill.reports.gate_run_sections import record_of

    if record := record_of(gate):
        show(record, printer(soft_wrap=False))
