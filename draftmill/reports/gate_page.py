"""report.html of the gate: the verdict, every check with its evidence, and histograms of each tensor.

A pure function of gate.json, so that whoever has the one can make the other.
"""

import math
from typing import Any

from draftmill.reports.gate_run_sections import run_sections
from draftmill.reports.histogram_svg import histogram_svg
from draftmill.reports.template import render

_RATIOS = (-16.0, 4.0)


def gate_page(gate: dict[str, Any], title: str) -> str:
    """The page for the JSON of a gate's result (`Gate.as_json`). title: what was gated, as owner/repo."""
    low, high = _axis(gate["tensors"])
    return render(
        "gate.html",
        gate=gate,
        title=title,
        run_sections=run_sections(gate),
        refusals=[refusal for check in gate["checks"] for refusal in check["refusals"]],
        tensors=[_tensor(tensor, low, high) for tensor in gate["tensors"]],
        tensor_head=(
            "tensor",
            "stored as",
            "figures",
            f"scales or magnitudes, 2^{low:.0f} .. 2^{high:.0f}",
            f"minimum / scale, {_RATIOS[0]:g} .. {_RATIOS[1]:g}",
        ),
    )


def _axis(tensors: list[dict[str, Any]]) -> tuple[float, float]:
    """In powers of two, for the scales or magnitudes of all tensors."""
    shown = [tensor["scales"] for tensor in tensors if tensor["scales"]]
    logs = [math.log2(edge) for histogram in shown for edge in histogram["edges"] if edge > 0]
    return (min(logs), max(logs)) if logs else (0.0, 1.0)


def _tensor(tensor: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    figures = tensor["figures"]
    median = figures.get("scale_median", figures.get("magnitude_median"))
    scales, ratios = tensor["scales"], tensor["ratios"]
    left = right = ""
    if scales:
        edges = [math.log2(edge) if edge > 0 else low for edge in scales["edges"]]
        mark = math.log2(median) if median else None
        left = histogram_svg(edges, scales["counts"], low, high, f"{tensor['name']}: median {median}", mark=mark)
    if ratios:
        middle = figures["ratio_median"]
        right = histogram_svg(
            ratios["edges"], ratios["counts"], *_RATIOS, f"{tensor['name']}: median {middle}", mark=middle
        )
    written = [(name, _number(value)) for name, value in figures.items()]
    return {"tensor": tensor, "figures": written, "scales": left, "ratios": right}


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
