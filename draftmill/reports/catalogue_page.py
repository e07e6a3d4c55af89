"""index.html of a store: a row for every drafter with its newest verdict, to be sorted and filtered."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from draftmill.reports.in_short import Acceptance, Speed, acceptance, speeds
from draftmill.reports.template import render
from draftmill.store.index import Index, Row
from draftmill.store.manifest import Kind

VERDICTS = ("pass", "no verdict", "refused")
_POWERS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMBT])")


@dataclass(frozen=True)
class Line:
    """A drafter as its row shows it. page: key of its own page. size: parameters, for sorting."""

    row: Row
    page: str | None
    size: float | None
    acceptance: Acceptance | None
    speeds: dict[str, Speed]


def catalogue_page(index: Index, source: str, pages: dict[tuple[Kind, str], str]) -> str:
    """HTML. source: sha256 of the index.json that it shows. pages: (kind, entry) -> key of the drafter's page."""
    lines = [_line(row, pages) for row in index.newest()]
    counted: Counter[str] = Counter(line.row.verdict for line in lines)
    return render(
        "catalogue.html",
        script="catalogue.js",
        lines=lines,
        counts=[(verdict, counted[verdict]) for verdict in VERDICTS if counted[verdict]],
        devices=_devices(lines),
        source=source,
        written=index.written,
    )


def _line(row: Row, pages: dict[tuple[Kind, str], str]) -> Line:
    return Line(
        row=row,
        page=pages.get((row.kind, row.entry)),
        size=parameters(row.size),
        acceptance=acceptance(row.measurements),
        speeds=speeds(row.measurements),
    )


def parameters(size: str | None) -> float | None:
    """How many a size as a name gives it stands for: "0.6B" is 6e8. None where it is none."""
    found = _SIZE.fullmatch((size or "").upper())
    return float(found[1]) * _POWERS[found[2]] if found else None


def _devices(lines: Iterable[Line]) -> list[str]:
    return sorted({device for line in lines for device in line.speeds})
