"""A histogram as an inline SVG: bars on an axis that all histograms of a page share, so that an odd one stands out."""

from collections.abc import Sequence
from html import escape

from draftmill.reports.visible import visible

WIDTH, HEIGHT = 200, 36


def histogram_svg(
    edges: Sequence[float], counts: Sequence[int], low: float, high: float, title: str, *, mark: float | None = None
) -> str:
    """counts[i] lie between edges[i] and edges[i + 1], in the units of the axis from low to high. mark: a line."""
    largest, span = max(counts, default=0), (high - low) or 1.0

    def across(value: float) -> float:
        return round(min(max((value - low) / span, 0.0), 1.0) * WIDTH, 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(visible(title))}</title>",
    ]
    for i, count in enumerate(counts):
        if count:
            left, right = across(edges[i]), across(edges[i + 1])
            tall = max(1.0, round(count / largest * HEIGHT, 1))
            parts.append(
                f'<rect x="{left}" y="{round(HEIGHT - tall, 1)}" width="{max(0.5, round(right - left - 0.3, 1))}" '
                f'height="{tall}"/>'
            )
    if mark is not None:
        parts.append(f'<line x1="{across(mark)}" x2="{across(mark)}" y1="0" y2="{HEIGHT}"/>')
    return "".join(parts) + "</svg>"
