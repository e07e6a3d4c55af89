"""gate.json and report.html as files."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from draftmill.reports.gate_page import gate_page

JSON, PAGE = "gate.json", "report.html"


def write_gate(folder: Path, gate: dict[str, Any], title: str) -> tuple[Path, Path]:
    """Writes both into a folder, made where it is not; each takes its name when it is whole. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(gate, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return _write(folder / JSON, text), _write(folder / PAGE, gate_page(gate, title))


def _write(path: Path, text: str) -> Path:
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    return path
