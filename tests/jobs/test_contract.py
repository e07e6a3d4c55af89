"""What a job makes of a request that lacks something."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.contract import Job, perform


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda job: job.input("product"), "The request has no input 'product'; it has model."),
        (lambda job: job.parameters["quant"], "The request has no parameter 'quant'; it has base, name."),
    ],
)
def test_what_the_request_does_not_name_is_named(tmp_path: Path, ask: Callable[[Job], Any], sentence: str) -> None:
    request = {"job": "check", "inputs": {"model": str(tmp_path)}, "parameters": {"name": "n", "base": "F16"}}
    (tmp_path / "request.json").write_text(json.dumps(request))
    result = perform("check", ask, tmp_path)
    assert (result.outcome, result.exit_code, result.error_code) == ("failed", 78, "request.incomplete")
    assert result.error == sentence
