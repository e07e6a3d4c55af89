"""A progress bar on standard error where that is a terminal, else nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from draftmill.progress import Progress
from draftmill.reports.visible import visible


@contextmanager
def progress_bar(*, count_bytes: bool = True) -> Iterator[Progress]:
    console = Console(emoji=False, stderr=True)
    amount: ProgressColumn = DownloadColumn() if count_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), amount, TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=visible(what), completed=done, total=total)
