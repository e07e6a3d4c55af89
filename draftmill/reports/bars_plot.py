"""Bars side by side: acceptance per position, and how many rounds accepted how many drafts."""

from collections.abc import Callable, Sequence

from draftmill.reports.document import Plot
from draftmill.reports.notation import share
from draftmill.reports.plot import WIDTH, box, label, line, plot, square
from draftmill.speculation.figures import Figure

_LEFT, _RIGHT, _TOP, _FLOOR = 40, WIDTH - 10, 34, 160
_HEIGHT = 194
_WIDEST = 44.0


def positions_plot(positions: Sequence[Figure], conditional: Sequence[Figure]) -> Plot | None:
    """Both from the first position on, one figure each; None where no position is known."""
    if all(figure.value is None for figure in (*positions, *conditional)):
        return None
    has_conditional = any(figure.value is not None for figure in conditional)
    said = "; ".join(
        f"draft {at}: {share(whole.value)} of all rounds"
        + (f", {share(given.value)} where the one before it was accepted" if has_conditional else "")
        for at, (whole, given) in enumerate(zip(positions, conditional, strict=True), 1)
    )
    legend = [square(_LEFT + 4, 9, 3, "two"), label(_LEFT + 11, 12, "of all rounds")]
    if has_conditional:
        legend += [
            square(_LEFT + 94, 9, 3, "one"),
            label(_LEFT + 101, 12, "where the draft before it was accepted"),
        ]
    heights = [(whole.value, given.value) if has_conditional else (whole.value,)
               for whole, given in zip(positions, conditional, strict=True)]  # fmt: skip
    names = [str(at) for at in range(1, len(heights) + 1)]
    tick = [(step / 4, f"{25 * step} %") for step in range(5)]
    parts = [*legend, *_bars(heights, 1.0, names, tick, lambda value: f"{100 * value:.0f}", "draft of a round")]
    title = "Acceptance per position"
    return Plot("positions", title, said, plot("positions", title, said, _HEIGHT, parts))


def accepted_plot(histogram: Sequence[int]) -> Plot:
    """histogram[a]: rounds that accepted a drafts."""
    most = max(*histogram, 1)
    said = "; ".join(f"{count} rounds accepted {accepted}" for accepted, count in enumerate(histogram))
    names = [str(accepted) for accepted in range(len(histogram))]
    ticks = [(0.0, "0"), (float(most), str(most))]
    parts = [label(2, 12, "rounds"), *_bars([(float(count),) for count in histogram], most, names, ticks,
             lambda value: f"{value:.0f}", "drafts accepted in a round")]  # fmt: skip
    title = "Accepted drafts per round"
    return Plot("histogram", title, said, plot("histogram", title, said, _HEIGHT, parts))


def _bars(
    groups: Sequence[Sequence[float | None]],
    top: float,
    names: Sequence[str],
    ticks: Sequence[tuple[float, str]],
    written: Callable[[float], str],
    axis: str,
) -> list[str]:
    def up(value: float) -> float:
        return _FLOOR - (_FLOOR - _TOP) * value / top

    parts = []
    for at, name in ticks:
        parts += [
            line(_LEFT, up(at), _RIGHT, up(at), "grid"),
            label(_LEFT - 4, up(at) + 3, name, "dim right"),
        ]
    spacing = (_RIGHT - _LEFT) / len(groups)
    legible = spacing >= 14
    for index, group in enumerate(groups):
        width = min(0.8 * spacing / len(group), _WIDEST)
        middle = _LEFT + (index + 0.5) * spacing
        for place, value in enumerate(group):
            x = middle + (place - len(group) / 2) * width
            if value is None:
                parts += [label(x + width / 2, _FLOOR - 3, "-", "dim middle")] if legible else []
                continue
            parts += [box(x + 0.5, up(value), width - 1, _FLOOR - up(value), ("two flat", "one flat")[place])]
            if legible:
                parts += [label(x + width / 2, up(value) - 3, written(value), "middle")]
        every = max(1, round(12 / spacing))
        if index % every == 0:
            parts += [label(middle, _FLOOR + 13, names[index], "dim middle")]
    return [*parts, line(_LEFT, _FLOOR, _RIGHT, _FLOOR, "axis"),
            label((_LEFT + _RIGHT) / 2, _HEIGHT - 5, axis, "dim middle")]  # fmt: skip
