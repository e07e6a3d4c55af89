"""The frame of every plot: an SVG that stands alone as a file and inline in a page, readable in the dark and on paper.

Drawn in units that are pixels on a phone, so that its text is legible there; larger screens enlarge it. A plot names
its title and what it shows, for those who hear it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log, log10

from draftmill.reports.visible import visible

WIDTH = 360
_LIGHT = (
    "--ink:#24292f;--dim:#59636e;--line:#d1d9e0;--paper:#fff;--one:#9a5b00;--two:#1f5fbf;--band:#1f5fbf22;"
    "--good:#1a7f37;--bad:#b42318"
)
_DARK = (
    "--ink:#d7dce2;--dim:#9aa4af;--line:#3a424b;--paper:#15181c;--one:#e5a14a;--two:#74a9f7;--band:#74a9f733;"
    "--good:#6cc781;--bad:#ff8f84"
)
PLOT_STYLE = (
    f".plot{{{_LIGHT};font:10px system-ui,sans-serif}}"
    f"@media screen and (prefers-color-scheme:dark){{.plot{{{_DARK}}}}}"
    ".plot .paper{fill:var(--paper)}.plot text{fill:var(--ink)}.plot .dim{fill:var(--dim)}"
    ".plot .grid{stroke:var(--line)}.plot .axis{stroke:var(--dim)}.plot .even{stroke:var(--dim);stroke-dasharray:3 3}"
    ".plot .join{stroke:var(--dim)}.plot .one{fill:var(--one);stroke:var(--one)}"
    ".plot .two{fill:var(--two);stroke:var(--two)}.plot .hollow{fill:var(--paper)}.plot .band{fill:var(--band)}"
    ".plot .good{fill:var(--good);stroke:var(--good)}.plot .bad{fill:var(--bad);stroke:var(--bad)}"
    ".plot .span{stroke-width:2}"
    ".plot .median{stroke:var(--two);stroke-width:1.5}.plot .on{fill:var(--paper)}.plot .cell{fill:var(--line)}"
    ".plot .flat{stroke:none}.plot .right{text-anchor:end}.plot .middle{text-anchor:middle}"
)


def plot(name: str, title: str, said: str, height: float, parts: Iterable[str], *, width: float = WIDTH) -> str:
    """An <svg> of these parts. name: a word, unique in the page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-said"><title id="{name}-title">{escape(visible(title))}</title>'
        f'<desc id="{name}-said">{escape(visible(said))}</desc><style>{PLOT_STYLE}</style>'
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>{"".join(parts)}</svg>'
    )


def label(x: float, y: float, text: str, kind: str = "") -> str:
    """kind: classes; "right" and "middle" anchor the text there."""
    return f'<text x="{x:.1f}" y="{y:.1f}"{_class(kind)}>{escape(visible(text))}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{_class(kind)}/>'


def box(x: float, y: float, width: float, height: float, kind: str, opacity: float | None = None) -> str:
    faint = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{_class(kind)}{faint}/>'


def dot(x: float, y: float, radius: float, kind: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"{_class(kind)}/>'


def square(x: float, y: float, half: float, kind: str) -> str:
    return box(x - half, y - half, 2 * half, 2 * half, kind)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


@dataclass(frozen=True)
class LogScale:
    """Equal ratios are equal distances. `low` is drawn at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, *, always: Sequence[float] = ()) -> "LogScale":
        """Holds `always`, and all values (above 0) but those farther out than the middle nine tenths are wide: one
        disturbed sample does not press the others together. A margin of a twentieth, and of 2 % at least."""
        some = sorted(values)
        fifth, last = some[len(some) // 20], some[-1 - len(some) // 20]
        low, high = max(some[0], fifth * fifth / last), min(some[-1], last * last / fifth)
        low, high = min(low, *always, high), max(high, *always, low)
        margin = max((high / low) ** 0.05, 1.02)
        return cls(low / margin, high * margin, start, end)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def at(self, value: float) -> float:
        """What lies beyond the scale is at its edge."""
        held = min(max(value, self.low), self.high)
        return self.start + (self.end - self.start) * log(held / self.low) / log(self.high / self.low)

    def ticks(self) -> list[float]:
        """Round values inside, some two to six of them."""
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1,)):
            found = [digit * 10.0**decade for decade in decades for digit in digits]
            inside = [value for value in found if self.low <= value <= self.high]
            if len(inside) <= 6:
                break
        return inside if len(inside) > 1 else _even_ticks(self.low, self.high)


def _even_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    return [index * step for index in range(ceil(low / step), floor(high / step) + 1)]
