"""report.html of the gate: the verdict, every check with its evidence, and histograms of each tensor.

A pure function of gate.json, so that whoever has the one can make the other.
"""

import json
import math
from collections.abc import Iterable
from html import escape
from typing import Any

from draftmill.reports.histogram_svg import histogram_svg
from draftmill.reports.style import STYLE
from draftmill.reports.visible import visible

_RATIOS = (-16.0, 4.0)


def gate_page(gate: dict[str, Any], title: str) -> str:
    """The page for the JSON of a gate's result (`Gate.as_json`). title: what was gated, as owner/repo."""
    verdict = gate["verdict"]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{_text(title)}: {_text(verdict)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        f'<p class="verdict {_css(verdict)}">{_text(verdict)}: {_text(gate["sentence"])}</p>',
        f'<p class="small">{_text(gate["gate"])}, {gate["bytes_read"]:,} bytes read.</p>',
        _refusals(gate["checks"]),
        "<h2>Checks</h2>",
        _table(("verdict", "check", "place", "evidence", "expected"), (_check(check) for check in gate["checks"])),
        _section("Remarks", ("code", "where", "what"), gate["remarks"], ("code", "where", "sentence")),
        _section("Files", ("path", "bytes", "SHA-256"), gate["files"], ("path", "size", "sha256")),
        _section("Forms that were met", ("what", "met", "times"), gate["variants"], ("what", "met", "count")),
        _package(gate["package"]),
        _tensors(gate["tensors"]),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _text(text: str) -> str:
    """Nothing that a stranger's file is named is markup, or hides or reorders what is read."""
    return escape(visible(text))


def _css(outcome: str) -> str:
    return outcome.replace(" ", "-")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return f"<code>{_text(json.dumps(value, ensure_ascii=False))}</code>"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heading = "".join(f"<th>{_text(each)}</th>" for each in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heading}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _check(check: dict[str, Any]) -> tuple[str, ...]:
    outcome = check["verdict"]
    return (
        f'<span class="tag {_css(outcome)}">{_text(outcome)}</span>',
        f"{_text(check['title'])}<br><code class='small'>{_text(check['id'])}</code>",
        f"<code>{_text(check['place'])}</code>",
        _text(check["evidence"]),
        _shown(check["expected"]),
    )


def _refusals(checks: list[dict[str, Any]]) -> str:
    found = [refusal for check in checks for refusal in check["refusals"]]
    if not found:
        return ""
    head = ("code", "where", "what is wrong, and what to do", "measured", "expected")
    rows = (
        (
            f"<code>{_text(each['code'])}</code>",
            f"<code>{_text(each['where'])}</code>",
            _text(each["sentence"]),
            _shown(each["measured"]),
            _shown(each["expected"]),
        )
        for each in found
    )
    return "<h2>Why it is refused</h2>" + _table(head, rows)


def _section(title: str, head: tuple[str, ...], values: list[dict[str, Any]], keys: tuple[str, ...]) -> str:
    if not values:
        return ""
    return f"<h2>{_text(title)}</h2>" + _table(head, ([_shown(value[key]) for key in keys] for value in values))


def _package(facts: dict[str, Any]) -> str:
    if not facts:
        return ""
    rows = ((f"<code>{_text(name)}</code>", _shown(value)) for name, value in facts.items())
    return "<h2>What the config states</h2>" + _table(("key", "value"), rows)


def _tensors(tensors: list[dict[str, Any]]) -> str:
    if not tensors:
        return ""
    shown = [tensor["scales"] for tensor in tensors if tensor["scales"]]
    logs = [math.log2(edge) for histogram in shown for edge in histogram["edges"] if edge > 0]
    low, high = (min(logs), max(logs)) if logs else (0.0, 1.0)
    head = ("tensor", "stored as", "figures", f"scales or magnitudes, 2^{low:.0f} .. 2^{high:.0f}",
            f"minimum / scale, {_RATIOS[0]:g} .. {_RATIOS[1]:g}")  # fmt: skip
    note = (
        '<p class="small">All histograms of a column share their axis; the line marks the median. Packed tensors: '
        "scales of groups; others: magnitudes of values.</p>"
    )
    return "<h2>Tensors</h2>" + note + _table(head, (_tensor(tensor, low, high) for tensor in tensors))


def _tensor(tensor: dict[str, Any], low: float, high: float) -> tuple[str, ...]:
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
    shape = " x ".join(map(str, tensor["shape"]))
    return (
        f"<code>{_text(tensor['stored_as'])}</code><br><span class='small'>{_text(tensor['role'])}</span>",
        f"{_text(tensor['dtype'])} {shape}<br><span class='small'>{_text(tensor['encoding'])}</span>",
        "<br>".join(f"<span class='small'>{_text(name)} {_number(value)}</span>" for name, value in figures.items()),
        left,
        right,
    )


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
