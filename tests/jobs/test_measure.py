"""The measuring jobs: what they are asked, what they state, and how they turn a request away."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftmill.measurement.device.profiles import CPU
from draftmill.measurement.record import Accepted, load
from jobs import measure_acceptance, measure_speed
from jobs.contract import Request, Result, perform
from tests.support import pairs

REQUEST = {
    "what": "acceptance",
    "route": "token-exact",
    "run": "job",
    "device": CPU.model_dump(mode="json"),
    "prompts": [{"name": "sky", "kind": "explanation", "text": "Why is the sky blue?"}],
    "budget": 8,
    "n_max": 2,
    "threads": 1,
}
JOBS = {"acceptance": measure_acceptance.work, "speed": measure_speed.work}


def ran(folder: Path, what: str, request: Any, draft: Path | None = None) -> Result:
    pair = pairs.small()
    draft = draft or pair.draft
    asked = Request(
        job=f"measure_{what}",
        inputs={"target": pair.target.parent, "draft": draft.parent},
        parameters={"request": request, "target_file": pair.target.name, "draft_file": draft.name},
    )
    (folder / "request.json").write_text(asked.model_dump_json())
    return perform(f"measure_{what}", JOBS[what], folder)


def test_a_job_writes_the_report_and_states_the_result(tmp_path):
    result = ran(tmp_path, "acceptance", REQUEST)
    assert result.outcome == "ok", result.error
    assert {"report.json", "report.md", "report.html"} <= {output.path for output in result.outputs}
    record = load((tmp_path / "out" / "report.json").read_bytes())
    assert isinstance(record, Accepted)
    assert record.acceptance is not None
    [answer] = record.acceptance.answers
    assert sum(round.accepted + 1 for round in answer.rounds) >= 8
    assert result.facts["word"] == "measured"
    # What worked on it: ourselves, and the engine with the digest that the live process gave.
    assert {tool.name: tool.digest for tool in result.tools}["xllamacpp"] == record.ran["target"].digest


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"budget": 2}, "budget"),
        ({"n_min": 3}, "above n_max"),
        ({"prompts": []}, "prompts"),
        ({"unknown": 1}, "unknown"),
        ({"what": "speed"}, "asks for speed"),
        ({"device": {"name": "cpu"}}, "device.engine"),
    ],
)
def test_a_wrong_request_is_a_wrong_configuration_that_names_the_member(tmp_path, change, told):
    result = ran(tmp_path, "acceptance", REQUEST | change)
    assert (result.outcome, result.exit_code, result.error_code) == ("failed", 78, "measure.request")
    assert told in (result.error or "")


def test_a_missing_request_is_told_as_well(tmp_path):
    assert ran(tmp_path, "speed", None).error_code == "measure.request"


def test_a_pair_that_does_not_fit_is_refused_with_every_finding(tmp_path):
    result = ran(tmp_path, "acceptance", REQUEST, draft=pairs.qwen3_draft())
    assert (result.outcome, result.exit_code) == ("refused", 65)
    assert {refusal.code for refusal in result.refusals} >= {"tokenizer.pair_size", "tokenizer.pair_text"}
    assert not list((tmp_path / "out").iterdir())
    assert json.loads((tmp_path / "result.json").read_text())["outcome"] == "refused"
