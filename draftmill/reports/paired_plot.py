"""Paired samples: what each pair's two arms took, and the ratios that the verdict comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from draftmill.measurement.statistics import Verdict
from draftmill.reports.document import Plot
from draftmill.reports.notation import interval, significant, times
from draftmill.reports.plot import WIDTH, LogScale, box, dot, label, line, plot, square

_LEFT, _RIGHT = 44, WIDTH - 10
_UPPER, _LOWER = (40, 180), (206, 290)
_HEIGHT = 322


@dataclass(frozen=True)
class PairOfTimes:
    """Seconds per new token; alone_first: the order in which the two were measured."""

    alone: float
    with_draft: float
    alone_first: bool

    @property
    def ratio(self) -> float:
        return self.alone / self.with_draft


def paired_plot(pairs: Sequence[PairOfTimes], verdict: Verdict) -> Plot:
    """pairs: at least one, in the order measured. verdict: of their ratios."""
    times_of = [value for pair in pairs for value in (pair.alone, pair.with_draft)]
    ratios = [pair.ratio for pair in pairs]
    seconds = LogScale.around(times_of, _UPPER[1], _UPPER[0])
    held_in = verdict.interval
    above = LogScale.around(ratios, _LOWER[1], _LOWER[0], always=(1.0, held_in.low, held_in.high))
    beyond = sum(not above.holds(ratio) for ratio in ratios)
    spacing = (_RIGHT - _LEFT) / len(pairs)
    half = max(0.8, min(3.0, 0.3 * spacing))
    said = (
        f"{len(pairs)} pairs: {significant(min(times_of))} to {significant(max(times_of))} seconds per new token; "
        f"ratios {times(min(ratios))} to {times(max(ratios))}, median {times(verdict.ratio)}, interval "
        f"{interval(held_in)}"
    )
    parts = [
        dot(_LEFT + 4, 9, 3, "one"),
        label(_LEFT + 11, 12, "target alone"),
        square(_LEFT + 84, 9, 3, "two"),
        label(_LEFT + 91, 12, "target + draft"),
        dot(_LEFT + 178, 9, 3, "one hollow"),
        square(_LEFT + 189, 9, 3, "two hollow"),
        label(_LEFT + 196, 12, "measured second"),
        label(2, 30, "seconds per new token"),
        *_ticks(seconds, ""),
        label(2, 198, "ratio: target alone / target + draft"),
        label(_RIGHT, 198, f"hollow: {beyond} beyond" if beyond else "", "dim right"),
        *_ticks(above, "x"),
        box(_LEFT, above.at(held_in.high), _RIGHT - _LEFT,
            max(above.at(held_in.low) - above.at(held_in.high), 0.5), "band"),
        line(_LEFT, above.at(1), _RIGHT, above.at(1), "even"),
        line(_LEFT, above.at(verdict.ratio), _RIGHT, above.at(verdict.ratio), "median"),
    ]  # fmt: skip
    for index, pair in enumerate(pairs):
        x = _LEFT + (index + 0.5) * spacing
        alone, draft = seconds.at(pair.alone), seconds.at(pair.with_draft)
        parts += [
            line(x, alone, x, draft, "join"),
            dot(x, alone, half, "one" if pair.alone_first else "one hollow"),
            square(x, draft, half, "two hollow" if pair.alone_first else "two"),
            dot(x, above.at(pair.ratio), half, "two" if above.holds(pair.ratio) else "two hollow"),
        ]
    which = f"pairs 0 to {len(pairs) - 1}" if len(pairs) > 1 else "pair 0"
    parts += [
        label((_LEFT + _RIGHT) / 2, _LOWER[1] + 13, f"{which}, in the order measured", "dim middle"),
        label(_LEFT, _HEIGHT - 5, f"line: median {times(verdict.ratio)}; band: {verdict.rule.level:.0%} interval; "
              "dashes: 1x", "dim"),
    ]  # fmt: skip
    title = "Paired samples"
    return Plot("paired", title, said, plot("paired", title, said, _HEIGHT, parts))


def _ticks(scale: LogScale, unit: str) -> list[str]:
    return [
        part
        for value in scale.ticks()
        for part in (
            line(_LEFT, scale.at(value), _RIGHT, scale.at(value), "grid"),
            label(_LEFT - 4, scale.at(value) + 3, f"{value:g}{unit}", "dim right"),
        )
    ]
