"""What a job makes of a request that lacks something."""

import json
from pathlib import Path

from jobs.check import work
from jobs.contract import perform


def test_an_input_that_the_request_does_not_name_is_named(tmp_path: Path) -> None:
    request = {"job": "check", "inputs": {"model": str(tmp_path)}, "parameters": {}}
    (tmp_path / "request.json").write_text(json.dumps(request))
    result = perform("check", work, tmp_path)
    assert (result.outcome, result.exit_code, result.error_code) == ("failed", 78, "request.input")
    assert "it has model" in (result.error or "")
