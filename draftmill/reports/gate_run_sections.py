"""What a run adds to the gate's report: its figures, each round, where texts part, and what ran."""

import json
from typing import Any

from draftmill.measurement.record import Accepted
from draftmill.reports.document import Section, Text
from draftmill.reports.measurement_document import measurement_document


def run_sections(gate: dict[str, Any]) -> tuple[Section, ...]:
    """Nothing for a gate without a run."""
    run = gate.get("run")
    if run is None:
        return ()
    first = Section("Run on a target", (Text(f"{run['word']}: {run['sentence']}"),))
    record = record_of(gate)
    return (first, *measurement_document(record).sections) if record else (first,)


def record_of(gate: dict[str, Any]) -> Accepted | None:
    """The run's record, where something ran."""
    record = gate.get("run", {}).get("record")
    return None if record is None else Accepted.model_validate_json(json.dumps(record))
