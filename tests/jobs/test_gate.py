"""The gate's job: outputs for a passing package, every reason of a refused one, and facts for both."""

import json
import os
from pathlib import Path
from typing import Any

from draftmill.reports.gate_page import gate_page
from jobs.contract import perform
from jobs.gate import work
from tests.support.dflash_packages import edit_config, tiny


def run(package: Path, job: Path, **parameters: Any) -> Any:
    job.mkdir()
    request = {"job": "gate", "inputs": {"package": str(package)}, "parameters": parameters}
    (job / "request.json").write_text(json.dumps(request))
    perform("gate", work, job)
    return json.loads((job / "result.json").read_text())


def test_a_passing_package_gives_its_report(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 2)
    result = run(tmp_path / "p", tmp_path / "job", title="FastFlowLM/Tiny")
    assert (result["outcome"], result["exit_code"]) == ("ok", 0)
    assert [output["path"] for output in result["outputs"]] == ["gate.json", "report.html"]
    written = json.loads((tmp_path / "job" / "out" / "gate.json").read_text())
    assert written == result["facts"]["gate"]
    assert (tmp_path / "job" / "out" / "report.html").read_text() == gate_page(written, "FastFlowLM/Tiny")
    assert {tool["name"] for tool in result["tools"]} == {"draftmill", "numpy"}


def test_a_refused_package_is_final_and_its_report_is_in_the_facts(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {"attention_bias": True, "mask_token_id": 9})
    result = run(tmp_path / "p", tmp_path / "job")
    assert (result["outcome"], result["exit_code"]) == ("refused", 65)
    assert {refusal["code"] for refusal in result["refusals"]} == {"dflash.conflict", "dflash.unsupported_key"}
    assert result["facts"]["gate"]["verdict"] == result["facts"]["verdict"] == "refused"


def test_what_was_not_downloaded_may_be_listed_by_the_manifest(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    with (tmp_path / "p" / "MANIFEST.sha256").open("a") as manifest:
        manifest.write(f"{'a' * 64}  banner.png\n")
    assert run(tmp_path / "p", tmp_path / "1", left_aside=["banner.png"])["outcome"] == "ok"
    assert run(tmp_path / "p", tmp_path / "2")["outcome"] == "refused"
    assert run(tmp_path / "p", tmp_path / "3", left_aside="banner.png")["error_code"] == "gate.left_aside"


def test_no_verdict_is_a_failure_to_read(tmp_path: Path, monkeypatch: Any) -> None:
    def failing(descriptor: int, buffers: Any, offset: int) -> int:
        raise OSError(5, "Input/output error")

    tiny(tmp_path / "p", 1)
    monkeypatch.setattr(os, "preadv", failing)
    result = run(tmp_path / "p", tmp_path / "job")
    assert (result["outcome"], result["exit_code"], result["error_code"]) == ("failed", 74, "gate.no_verdict")
    assert result["facts"]["verdict"] == "no verdict"


def test_a_package_that_is_written_to_is_a_failure_to_read_and_no_final_refusal(
    tmp_path: Path, monkeypatch: Any
) -> None:
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {"head_dim": 32})
    read = os.preadv

    def writing(descriptor: int, buffers: Any, offset: int) -> int:
        with (tmp_path / "p" / "model.q4nx").open("ab") as file:
            file.write(b"more")
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", writing)
    result = run(tmp_path / "p", tmp_path / "job")
    assert (result["outcome"], result["exit_code"], result["error_code"]) == ("failed", 74, "gate.no_verdict")
    assert "while it was read" in result["error"]
