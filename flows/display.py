"""What a person sees while a run goes on: one bar a job on a terminal, nothing in a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from draftmill.cli.telling import printer
from draftmill.progress import Progress as ReportProgress

ENDED_BADLY = ("refused", "failed")


class Display(Protocol):
    def started(self, title: str, reason: str) -> None: ...
    def event(self, title: str, event: dict[str, Any]) -> None: ...
    def skipped(self, title: str, reason: str) -> None: ...
    def ended(self, title: str, how: str) -> None: ...


class Silent:
    """For pipes and workers."""

    def started(self, title: str, reason: str) -> None:
        pass

    def event(self, title: str, event: dict[str, Any]) -> None:
        pass

    def skipped(self, title: str, reason: str) -> None:
        pass

    def ended(self, title: str, how: str) -> None:
        pass


class _Mark(SpinnerColumn):
    """Turns while it runs; then whether it went well."""

    def render(self, task: Task) -> RenderableType:
        if not task.finished:
            return super().render(task)
        return Text("✓", style="green") if task.fields["well"] else Text("✗", style="red")


class Terminal:
    """Bars on standard error, so that standard output stays free for the result."""

    def __init__(self, console: Console, explain: bool = False) -> None:
        self.console = console
        self.explain = explain
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            _Mark(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> "Terminal":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def started(self, title: str, reason: str) -> None:
        self._tasks[title] = self._bars.add_task(f"{title:<46}", total=None, amount="", well=True)
        if self.explain:
            self.console.print(Text(f"  {title}: runs, {reason}", style="dim"))

    def event(self, title: str, event: dict[str, Any]) -> None:
        if event["event"] == "progress" and title in self._tasks:
            done, total = event["done"], event["total"]
            shown = f"{event['what']} {done}/{total}" if total < 1 << 20 else f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"
            self._bars.update(self._tasks[title], completed=done, total=total or None, amount=shown)
        elif event["event"] == "stderr" and self.explain:
            self.console.print(Text(f"  {title}: {event['line']}", style="dim"))

    def skipped(self, title: str, reason: str) -> None:
        if self.explain:
            self.console.print(Text(f"  {title}: skipped, {reason}", style="dim"))
        self.ended(title, "cached")

    def ended(self, title: str, how: str) -> None:
        if title not in self._tasks:
            self._tasks[title] = self._bars.add_task(f"{title:<46}", total=1, amount="", well=True)
        self._bars.update(self._tasks[title], completed=1, total=1, amount=how, well=how not in ENDED_BADLY)


SILENT = Silent()
DISPLAY: ContextVar[Display] = ContextVar("display", default=SILENT)
"""The display of this command. Prefect copies the context into the tasks it runs."""


def progress_of(display: Display, title: str) -> ReportProgress:
    """A library's progress as events of the bar with this title."""
    return lambda what, done, total: display.event(
        title, {"event": "progress", "what": what, "done": done, "total": total}
    )


@contextmanager
def shown(explain: bool) -> Iterator[Display]:
    """Bars on a terminal; quiet in a pipe, unless reasons were asked for."""
    if not (sys.stderr.isatty() or explain):
        yield SILENT
        return
    with Terminal(printer(stderr=True, soft_wrap=False), explain) as display:
        token = DISPLAY.set(display)
        try:
            yield display
        finally:
            DISPLAY.reset(token)
