"""What `draftmill measure` prints at its end: the figures as tables, then the verdict in its colour."""

from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table as Columns
from rich.text import Text

from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.record import Accepted, Speed
from draftmill.measurement.speed_results import speed_result
from draftmill.reports.acceptance_sections import figures_table, groups_table, histogram_table, positions_table
from draftmill.reports.document import Table, Tone
from draftmill.reports.measurement_document import tone
from draftmill.reports.speed_sections import arms_table, divergences, kinds_table
from draftmill.reports.visible import visible

COLOURS: dict[Tone, str] = {"good": "green", "bad": "red", "open": "yellow", "plain": "bold"}
_DEFINITION = "definition"


def show(record: Speed | Accepted, console: Console) -> None:
    """The tables by kind, both arms or the acceptance figures, what the record remarks, and last the sentence.

    Raises Refused (draftmill.measurement.speed_results).
    """
    tables: list[Table] = []
    word: str
    lossless: str | None = None
    if isinstance(record, Speed):
        speed = speed_result(record)
        word, sentence, lossless = speed.word, speed.sentence, speed.lossless
        tables = [kinds_table(speed), arms_table(speed)]
    else:
        found = acceptance_result(record)
        word, sentence, lossless = found.word, found.sentence, found.lossless
        if found.figures:
            tables = [groups_table("By kind of prompt", "kind", found.by_kind), figures_table(found.figures)]
        if found.figures and record.loop is not None:
            tables.insert(0, groups_table("By prompt", "prompt", found.by_prompt))
            tables += [each for each in (positions_table(found.figures), histogram_table(found.figures)) if each]
        if parted := divergences(record):
            tables += [block for block in parted.blocks if isinstance(block, Table)]
    for table in tables:
        if table.rows:
            console.print(columns(table))
    for remark in (*record.pairing, *record.memory.remarks, *record.remarks):
        console.print(Text.assemble(("remark", "yellow"), f" {visible(remark)}"), soft_wrap=True)
    said = Text(visible(sentence))
    said.stylize(COLOURS[tone(word, lossless)], 0, len(word) if sentence.startswith(word) else None)
    console.print(said, soft_wrap=True)


def columns(table: Table) -> Columns:
    """Definitions are long, and in the report."""
    shown = [column for column, name in enumerate(table.head) if name != _DEFINITION]
    columns = Columns(title=table.caption, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in shown:
        head = table.head[column].replace("/", " / ")
        side: Literal["left", "right"] = "right" if column in table.numeric else "left"
        columns.add_column(head, justify=side, overflow="fold", no_wrap=not column)
    for row in table.rows:
        columns.add_row(*(Text(visible(row[column])) for column in shown))
    return columns
