"""The report of a cross measurement: report.json, report.md, report.html, and the plot that report.md shows."""

import json
import shlex
from pathlib import Path
from typing import Any

from draftmill.measurement.cross_record import Cross
from draftmill.measurement.cross_results import CrossResult, cross_result
from draftmill.reports import cross_sections, measured_sections, speed_sections
from draftmill.reports.document import Document, Facts, Section, Text, Tone, Verbatim
from draftmill.reports.document_page import document_page
from draftmill.reports.document_text import document_text
from draftmill.reports.measurement_files import JSON, PAGE, TEXT
from draftmill.reports.measurement_json import numbers_on_lines
from draftmill.whole_file import write_whole

TONES: dict[str, Tone] = {
    "agree": "good",
    "explained": "plain",
    "unexplained": "open",
    "no verdict": "open",
    "diverged": "bad",
}


def cross_document(record: Cross, result: CrossResult | None = None) -> Document:
    result = result or cross_result(record)
    own = record.own
    sections = [
        measured_sections.remarks(own),
        measured_sections.pair(own),
        cross_sections.sides(record, result),
        cross_sections.departures(record),
        speed_sections.divergences(own),
        cross_sections.routes(record),
        measured_sections.regime(own),
        measured_sections.setting(own),
        measured_sections.prompts(own),
        _reproduce(record),
    ]
    return Document(
        title=f"Three ways: {own.draft.name} drafts for {own.target.name}",
        word=result.word,
        tone=TONES[result.word],
        sentence=f"{result.word}: {result.sentence}",
        below=f"Run {own.run}, started {own.started}, {own.tool}. Own loop: {_lossless(result)}.",
        sections=tuple(section for section in sections if section),
    )


def cross_json(record: Cross) -> str:
    """{"record": ..., "results": ...}; loading starts from the record alone."""
    value = {"record": record.model_dump(mode="json"), "results": results_json(record)}
    return numbers_on_lines(json.dumps(value, indent=1, allow_nan=False)) + "\n"


def results_json(record: Cross) -> dict[str, Any]:
    result = cross_result(record)
    return {
        "word": result.word,
        "sentence": result.sentence,
        "lossless": result.lossless,
        "routes": {name: figures.as_json() for name, figures in result.whole.items()},
        "rounds": [
            {
                "prompt": row.prompt,
                "route": row.route,
                "rounds": row.trace.passes,
                "tokens_per_round_untruncated": row.untruncated,
                "tokens_per_round_budget": row.by_budget,
                "own_text": row.same,
                "accepted": [each.accepted for each in row.trace.rounds],
            }
            for row in result.rows
        ],
    }


def write_cross(folder: Path, record: Cross) -> tuple[Path, ...]:
    """Writes the report into a folder, made where it is not; the record first. Raises OSError."""
    document = cross_document(record)
    content = {JSON: cross_json(record)} | {f"{plot.name}.svg": plot.svg + "\n" for plot in document.plots}
    content |= {TEXT: document_text(document), PAGE: document_page(document)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        write_whole(folder / name, text)
    return tuple(folder / name for name in content)


def _lossless(result: CrossResult) -> str:
    if result.lossless == "identical":
        return "every text is the target's own greedy text, token for token"
    return result.lossless or "not known"


def _reproduce(record: Cross) -> Section:
    own, options = record.own, record.options
    loop = own.loop
    line: list[object] = ["draftmill", "measure", "cross", "--drafter", own.draft.name, "--target", own.target.name]
    for route in record.routes:
        if route.target and route.draft and not route.target.made:
            line += ["--target-gguf", route.target.file.name]
        if route.draft and not route.draft.made and route.draft.file.sha256 != own.draft.sha256:
            line += ["--drafter-gguf", route.draft.file.name]
        if route.target:
            break
    line += ["--max-new", own.regime.budget, "--form", "chat" if own.setup.chat else "raw", "--kv", options.kv]
    line += ["--p-min", options.p_min, "--near-tie", options.near_tie]
    line += ["--threads", options.threads] if options.threads else []
    if loop:
        line += ["--dtype", loop.dtype, "--torch-device", loop.torch_device, "--window", loop.window_rule.value]
        line += ["--weights", "packed" if loop.packed else "decoded"]
        if loop.causal is not None:
            line.append("--causal" if loop.causal else "--non-causal")
    note = "The prompts, and engines that are not the package's, are given by --prompts and --engine."
    facts = (("draftmill", Verbatim(shlex.join(str(part) for part in line))),)
    return Section("How to reproduce", (Text(note), Facts(facts)))
