"""gate.json and report.html as files."""

import json
from pathlib import Path
from typing import Any

from draftmill.reports.gate_page import gate_page
from draftmill.whole_file import write_whole

JSON, PAGE = "gate.json", "report.html"


def write_gate(folder: Path, gate: dict[str, Any], title: str) -> tuple[Path, Path]:
    """Writes both into a folder, made where it is not; each takes its name when it is whole. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / JSON, json.dumps(gate, indent=1, allow_nan=False) + "\n")
    write_whole(folder / PAGE, gate_page(gate, title))
    return folder / JSON, folder / PAGE
