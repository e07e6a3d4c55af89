"""Speed ratios of one drafter: a line each with its interval, or the outcome in words where there is no ratio."""

from collections.abc import Sequence
from dataclasses import dataclass

from draftmill.reports.document import Plot
from draftmill.reports.in_short import Speed
from draftmill.reports.plot import WIDTH, LogScale, dot, label, line, plot

_LEFT, _RIGHT = 10, WIDTH - 10
_TOP, _ROW, _BOTTOM = 8, 36, 26


@dataclass(frozen=True)
class Measured:
    """name: what ran with what, for the reader."""

    name: str
    speed: Speed


def ratios_plot(measured: Sequence[Measured]) -> Plot | None:
    """None where no ratio is known: words alone are no plot. Each line is of a regime of its own."""
    ratios = [each.speed.ratio for each in measured if each.speed.ratio]
    if not ratios:
        return None
    values = [value for ratio in ratios for value in (ratio.low, ratio.value, ratio.high)]
    scale = LogScale.around(values, _LEFT, _RIGHT, always=(1.0, min(values), max(values)))
    floor = _TOP + _ROW * len(measured)
    parts = [label(scale.at(value), floor + 12, f"{value:g}x", "dim middle") for value in scale.ticks()]
    for index, each in enumerate(measured):
        y = _TOP + _ROW * index
        # The grid stays below the words.
        parts += [line(scale.at(value), y + 15, scale.at(value), y + 29, "grid") for value in scale.ticks()]
        parts += [line(scale.at(1), y + 15, scale.at(1), y + 29, "even")]
        parts += [label(_LEFT, y + 11, each.name), label(_RIGHT, y + 11, _said(each.speed), "right")]
        if ratio := each.speed.ratio:
            kind = {"good": "good", "bad": "bad"}.get(each.speed.tone, "two")
            parts += [
                line(scale.at(ratio.low), y + 22, scale.at(ratio.high), y + 22, f"span {kind}"),
                dot(scale.at(ratio.value), y + 22, 3.5, kind),
            ]
    said = "; ".join(f"{each.name}: {_said(each.speed)}" for each in measured)
    title = "Speed: target alone / with the draft; each line is of its own regime"
    return Plot("ratios", title, said, plot("ratios", title, said, floor + _BOTTOM, parts))


def _said(speed: Speed) -> str:
    words = speed.word + (f": {speed.reason}" if speed.reason else "") + (f", {speed.changed}" if speed.changed else "")
    if not speed.ratio:
        return words
    return f"{words} {speed.ratio.value:.2f}x [{speed.ratio.low:.2f}, {speed.ratio.high:.2f}]"
