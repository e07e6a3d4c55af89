"""report.json: the record, and figures for readers without draftmill. Loading starts from the record alone."""

import json
import re
from dataclasses import asdict
from typing import Any

from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.record import Accepted, Speed
from draftmill.measurement.speed_results import speed_result

_NUMBERS = re.compile(r"\[\n[\d\s,]*\]")
"""A list of whole numbers over several lines. No text holds a line break in JSON, so that none is met in one."""


def report_json(record: Speed | Accepted) -> str:
    """{"record": ..., "results": ...}, ASCII: names from strangers cannot reorder what an editor shows. Lists of tokens
    stay on one line. Raises Refused (speed_result's reasons)."""
    value = {"record": record.model_dump(mode="json"), "results": results_json(record)}
    return numbers_on_lines(json.dumps(value, indent=1, allow_nan=False)) + "\n"


def numbers_on_lines(text: str) -> str:
    """Indented JSON in which each list of whole numbers stays on one line."""
    return _NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]"), text)


def results_json(record: Speed | Accepted) -> dict[str, Any]:
    """The figures of a record as JSON values. Raises Refused (speed_result's reasons)."""
    if isinstance(record, Accepted):
        found = acceptance_result(record)
        return {
            "word": found.word,
            "sentence": found.sentence,
            "figures": found.figures.as_json() if found.figures else None,
            "by_kind": {kind: figures.as_json() for kind, figures in found.by_kind.items()},
            "by_prompt": {prompt: figures.as_json() for prompt, figures in found.by_prompt.items()},
            "lossless": found.lossless,
        }
    result = speed_result(record)
    return {
        "word": result.word,
        "reason": result.reason,
        "sentence": result.sentence,
        "request": asdict(result.request) if result.request else None,
        "generation": asdict(result.generation) if result.generation else None,
        "lossless": result.lossless,
        "arms": [asdict(arm) for arm in result.arms],
        "cpu": result.cpu,
        "acceptance": result.acceptance.as_json() if result.acceptance else None,
        "costs": [cost.as_json() for cost in result.costs],
        "kinds": [
            {
                "kind": kind.kind,
                "request": asdict(kind.request),
                "lossless": kind.lossless,
                "acceptance": kind.acceptance.as_json() if kind.acceptance else None,
            }
            for kind in result.kinds
        ],
    }
