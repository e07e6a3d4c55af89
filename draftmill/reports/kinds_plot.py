"""Acceptance by kind of prompt in one regime: a bar each, and its interval where the prompts suffice for one."""

from draftmill.reports.document import Plot
from draftmill.reports.in_short import Acceptance, Kind
from draftmill.reports.plot import WIDTH, box, label, line, plot

_LEFT, _RIGHT = 84, WIDTH - 118
_TOP, _ROW, _BOTTOM = 6, 22, 20


def kinds_plot(acceptance: Acceptance, name: str) -> Plot | None:
    """name: a word, unique in the page. None where nothing was counted."""
    kinds = acceptance.kinds
    if not kinds:
        return None
    floor = _TOP + _ROW * len(kinds)
    parts = [
        part
        for share in (0, 25, 50, 75, 100)
        for part in (
            line(_at(share), _TOP, _at(share), floor, "grid"),
            label(_at(share), floor + 12, f"{share} %", "dim middle"),
        )
    ]
    for index, each in enumerate(kinds):
        y = _TOP + _ROW * index
        parts += [
            label(_LEFT - 6, y + 14, each.kind or "", "right"),
            box(_LEFT, y + 5, _at(each.share) - _LEFT, 12, "two flat", 0.55),
            label(_RIGHT + 6, y + 14, _said(each)),
        ]
        if each.low is not None and each.high is not None:
            parts += [line(_at(each.low), y + 11, _at(each.high), y + 11, "axis")]
            parts += [line(_at(end), y + 8, _at(end), y + 14, "axis") for end in (each.low, each.high)]
    said = "; ".join(f"{each.kind}: {_said(each)}" for each in kinds)
    title = f"Accepted/offered by kind of prompt, on {acceptance.device}, regime {acceptance.regime}"
    return Plot(name, title, said, plot(name, title, said, floor + _BOTTOM, parts))


def _at(share: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * share / 100


def _said(each: Kind) -> str:
    span = "" if each.low is None or each.high is None else f" [{each.low:.1f}, {each.high:.1f}]"
    return f"{each.share:.1f} %{span}"
