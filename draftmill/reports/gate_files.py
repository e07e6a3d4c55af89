"""gate.json and report.html as files; with a run also report.md and its plots."""

import json
from pathlib import Path
from typing import Any

from draftmill.reports.document_text import document_text
from draftmill.reports.gate_document import gate_document
from draftmill.reports.gate_page import gate_page
from draftmill.whole_file import write_whole

JSON, PAGE, TEXT = "gate.json", "report.html", "report.md"


def write_gate(folder: Path, gate: dict[str, Any], title: str) -> tuple[Path, Path]:
    """Writes both into a folder, made where it is not; each takes its name when it is whole. Raises OSError.

    A gate with a run (`draftmill.measurement.gate_run`) is told in report.md too, with its plots beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if "run" in gate:
        document = gate_document(gate, title)
        for plot in document.plots:
            write_whole(folder / f"{plot.name}.svg", plot.svg + "\n")
        write_whole(folder / TEXT, document_text(document))
    write_whole(folder / JSON, json.dumps(gate, indent=1, allow_nan=False) + "\n")
    write_whole(folder / PAGE, gate_page(gate, title))
    return folder / JSON, folder / PAGE
