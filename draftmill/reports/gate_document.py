"""A gate with a run as a document, for report.md: the verdict, every check, the reasons, the run."""

from typing import Any

from draftmill.reports.document import Document, Section, Table, Tone
from draftmill.reports.gate_run_sections import run_sections

_TONES: dict[str, Tone] = {"pass": "good", "refused": "bad", "no verdict": "open"}


def gate_document(gate: dict[str, Any], title: str) -> Document:
    """For the JSON of a gate's result. title: what was gated, as owner/repo."""
    checks = [check for check in gate["checks"] if check["verdict"] != "not applicable"]
    table = Table(
        "Checks",
        ("verdict", "check", "evidence"),
        tuple((check["verdict"], check["title"], check["evidence"]) for check in checks),
    )
    refusals = [refusal for check in checks for refusal in check["refusals"]]
    sections = [Section("Checks", (table,)), *run_sections(gate)]
    if refusals:
        rows = tuple((each["code"], each["where"], each["sentence"]) for each in refusals)
        sections.insert(0, Section("Why it is refused", (Table("Reasons", ("code", "where", "what"), rows),)))
    return Document(
        title=title,
        word=gate["verdict"],
        tone=_TONES[gate["verdict"]],
        sentence=f"{gate['verdict']}: {gate['sentence']}",
        below=f"{gate['gate']}, {gate['bytes_read']:,} bytes read.",
        sections=tuple(sections),
    )
