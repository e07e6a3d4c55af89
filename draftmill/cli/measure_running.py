"""A measurement from the command line: run here or by the pipeline, then told and written."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer

from draftmill.cli.bar import progress_bar
from draftmill.cli.telling import printer
from draftmill.outcome import BadConfiguration, InputOutput

PASS, FAILED, NO_VERDICT = 0, 1, 3
EXITS = {"no verdict": NO_VERDICT, "did not speculate": FAILED}
"""Words of a result that do not end with 0; text that the draft changed ends with 1 too."""
CHANGED = "diverged: clear gap"
PIPELINE = "draftmill.pipeline"


def measure(
    asked: Any,
    target: Path,
    draft: Path,
    report: Path | None,
    as_json: bool,
    wait: int,
    publish: bool,
    store: str,
    work: Path,
    runner: str,
) -> None:
    from draftmill.measurement.device.lock import device_lock
    from draftmill.measurement.device.preflight import preflight
    from draftmill.measurement.record import load
    from draftmill.measurement.request import perform
    from draftmill.measurement.statement import check_pair

    if report:
        ready(report)
    # Before a device is waited for, and before images are built.
    if asked.loop is None:
        check_pair(target, draft)
    places: dict[str, str] = {}
    if publish:
        published = _pipeline()(
            asked.model_dump(mode="json"),
            target=target.absolute(),
            draft=draft.absolute(),
            store=store,
            work=work.absolute(),
            runner=runner,
            wait_s=wait,
        )
        record, places = load(published["report"]), published["places"]
    else:
        with (
            progress_bar(count_bytes=False) as progress,
            ended_by_signals(),
            device_lock(asked.device, run=asked.run, wait_s=wait, progress=progress),
        ):
            preflight(asked.device).check()
            record = perform(asked, target, draft, progress)
    # What was measured is told even where it cannot be written.
    code = finish(record, as_json)
    if report:
        write_into(report, record)
    if not as_json:
        for name, place in places.items():
            typer.echo(f"{name}: {place}")
    raise typer.Exit(code)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP leave the block as an exception does: its servers are ended with all that they started."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pipeline() -> Callable[..., Any]:
    found = list(entry_points(group=PIPELINE, name="measure_pair"))
    try:
        run: Callable[..., Any] = found[0].load()
    except (IndexError, ModuleNotFoundError) as error:
        raise BadConfiguration(
            f"--publish needs the pipeline ({error}): pip install 'draftmill[pipeline]', or use ./mill",
            code="cli.pipeline",
        ) from None
    return run


def load_report(path: Path, *, cross: bool = False) -> Any:
    """cross: whether a report of `measure cross` is taken too."""
    from draftmill.measurement.cross_record import load_any
    from draftmill.measurement.record import load

    try:
        return (load_any if cross else load)(path.read_bytes())
    except OSError as error:
        raise InputOutput(f"{path} cannot be read ({error.strerror}).", code="cli.report", where=str(path)) from error


def finish(record: Any, as_json: bool) -> int:
    """Prints the record and returns the exit code for it."""
    from draftmill.cli.measure_table import show as show_table
    from draftmill.measurement.acceptance_results import acceptance_result
    from draftmill.measurement.record import Speed
    from draftmill.measurement.speed_results import speed_result
    from draftmill.reports.measurement_json import report_json

    if as_json:
        typer.echo(report_json(record))
    else:
        show_table(record, printer(soft_wrap=False))
    result = speed_result(record) if isinstance(record, Speed) else acceptance_result(record)
    return FAILED if result.lossless == CHANGED else EXITS.get(result.word, PASS)


def ready(place: Path) -> None:
    """Before the work, which takes minutes. Raises BadParameter where nothing can be written.

    The folder itself is made when there is a report: work that is refused or stopped leaves no empty one behind.
    """
    try:
        standing = next(each for each in (place, *place.absolute().parents) if each.exists() or each.is_symlink())
        if not standing.is_dir():
            raise NotADirectoryError(20, "Not a directory")
        if not os.access(standing, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise typer.BadParameter(
            f"nothing can be written into {place} ({error.strerror or error}); name another folder",
            param_hint="--report",
        ) from None


def write_into(place: Path, record: Any) -> None:
    from draftmill.reports.measurement_files import write_report

    with report_written(place):
        write_report(place, record)


@contextmanager
def report_written(place: Path) -> Iterator[None]:
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputOutput(
            f"the report could not be written into {place} ({error.strerror or error}): look at the disk, or name "
            "another folder.",
            code="cli.report",
            where=str(place),
        ) from error
