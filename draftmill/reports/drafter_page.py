"""The page of one drafter: its newest verdict and what it rests on, what there is to fetch, what was measured, and
where all of it comes from.

A pure function of the index's rows and the manifest, so that the same state gives the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from draftmill.reports.document import Plot
from draftmill.reports.in_short import Acceptance, Speed, acceptance_of, page_of, speed_of
from draftmill.reports.kinds_plot import kinds_plot
from draftmill.reports.notation import size
from draftmill.reports.ratios_plot import Measured, ratios_plot
from draftmill.reports.template import render
from draftmill.store.index import Measurement, Row
from draftmill.store.manifest import INHERITS, Manifest
from draftmill.store.notices import ancestor_line, obligation_line
from draftmill.store.provenance import NAME as PROVENANCE

MOST_LINES, MOST_PLOTS = 12, 4
"""The newest are drawn; the table has every one."""


@dataclass(frozen=True)
class Run:
    """A measurement with what its columns show. draft: the encoding that ran, as far as a row knows it."""

    measurement: Measurement
    draft: str
    speed: Speed | None
    acceptance: Acceptance
    page: str


def drafter_page(rows: Sequence[Row], key: str, manifest: Manifest | None, problem: str = "") -> str:
    """HTML. rows: of one drafter, the newest first. key: the page's own. manifest: of the newest row that has one;
    problem: why it is missing though there is one."""
    newest = rows[0]
    published = next((row for row in rows if row.manifest), None)
    runs = _runs(rows)
    return render(
        "drafter.html",
        root="../" * key.count("/"),
        row=newest,
        findings=newest.findings or ((newest.reason,) if newest.reason else ()),
        published=published,
        is_older=published is not None and published is not newest,
        manifest=manifest,
        problem=problem,
        provenance=f"{manifest.folder}/{PROVENANCE}" if manifest else None,
        obligations=[obligation_line(each) for each in manifest.obligations] if manifest else [],
        lineage=[ancestor_line(each) for each in manifest.lineage] if manifest else [],
        asked_for=_asked_for(manifest),
        runs=runs,
        plots=_plots(runs),
        rows=rows,
        size=size,
        file_name=_file_name,
    )


def _runs(rows: Sequence[Row]) -> list[Run]:
    """Every measurement of any of the rows, the newest first."""
    encodings = {quant.sha256: quant.encoding for row in reversed(rows) for quant in row.quants}
    found = {each.report: each for row in rows for each in row.measurements}
    ordered = sorted(found.values(), key=lambda each: (each.started, each.report), reverse=True)
    return [
        Run(
            measurement=each,
            draft=encodings.get(each.draft, each.draft[:12]),
            speed=speed_of(each) if each.what == "speed" else None,
            acceptance=acceptance_of(each),
            page=page_of(each),
        )
        for each in ordered
    ]


def _plots(runs: Sequence[Run]) -> list[Plot]:
    """Of the newest run of each draft with each target on each device."""
    timed: dict[tuple[str, ...], Measured] = {}
    counted: dict[tuple[str, ...], Acceptance] = {}
    for run in runs:
        each = run.measurement
        what = (each.device, each.draft, each.target)
        if run.speed and what not in timed:
            timed[what] = Measured(f"{each.device}, {run.draft}", run.speed)
        if run.acceptance.kinds and what not in counted:
            counted[what] = run.acceptance
    drawn = [ratios_plot(list(timed.values())[:MOST_LINES])]
    drawn += [kinds_plot(each, f"kinds{at}") for at, each in enumerate(list(counted.values())[:MOST_PLOTS])]
    return [plot for plot in drawn if plot]


def _asked_for(manifest: Manifest | None) -> list[tuple[str, Any]]:
    """Without what it inherits: that is told as the obligations."""
    given = manifest.parameters if manifest else {}
    return [(name, value) for name, value in given.items() if name != INHERITS and value not in (None, [], "", {})]


def _file_name(key: str) -> str:
    return PurePosixPath(key).name
