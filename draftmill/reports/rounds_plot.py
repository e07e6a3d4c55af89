"""The per-round strip: one row an answer, one cell a round, as dark as the share of its drafts that was accepted.

Whether a drafter is steady or all or nothing is seen here and in no mean.
"""

from collections.abc import Sequence

from draftmill.reports.document import Plot
from draftmill.reports.plot import WIDTH, box, label, plot
from draftmill.speculation.trace import Round, Trace

_LEFT, _RIGHT = 4, WIDTH - 4
_ROW, _CELL, _TOP = 32, 14, 24
_WIDEST, _LEGIBLE = 16.0, 8.0
_PALEST = 0.12


def rounds_plot(answers: Sequence[Trace]) -> Plot:
    longest = max([trace.passes for trace in answers] + [1])
    width = min(_WIDEST, (_RIGHT - _LEFT) / longest)
    said = "; ".join(
        f"{trace.prompt}: {' '.join(str(round.accepted) for round in trace.rounds) or 'no round'}" for trace in answers
    )
    parts = [
        label(_RIGHT - 105, 12, "accepted of a round's drafts: none", "right"),
        *(box(_RIGHT - 101 + 16 * step, 3, 15, 12, "two flat", _opacity(step / 4)) for step in range(5)),
        label(_RIGHT - 18, 12, "all"),
    ]
    for row, trace in enumerate(answers):
        y = _TOP + row * _ROW
        parts += [
            label(_LEFT, y + 10, _short(trace.prompt)),
            label(_RIGHT, y + 10, f"{trace.accepted}/{trace.offered} in {trace.passes} rounds", "dim right"),
        ]
        for index, each in enumerate(trace.rounds):
            parts += _cell(each, _LEFT + index * width, y + 14, width)
    title = "Each round"
    height = _TOP + _ROW * len(answers) + 4
    return Plot("rounds", title, f"Accepted in each round. {said}", plot("rounds", title, said, height, parts))


def _cell(each: Round, x: float, y: float, width: float) -> list[str]:
    gap = 1.0 if width >= _LEGIBLE else 0.0
    if not each.offered:
        return [box(x, y + _CELL - 2, width - gap, 2, "cell")]
    part = each.accepted / each.offered
    found = [box(x, y, width - gap, _CELL, "two flat", _opacity(part))]
    if width >= _LEGIBLE:
        found += [label(x + (width - gap) / 2, y + 10.5, str(each.accepted), "on middle" if part > 0.5 else "middle")]
    return found


def _opacity(part: float) -> float:
    return _PALEST + (1 - _PALEST) * part


def _short(name: str) -> str:
    return name if len(name) <= 36 else f"{name[:35]}…"
