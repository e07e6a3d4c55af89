"""The job: files named by the convention, the account as a fact, and each wrong parameter by its name."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.contract import perform
from jobs.dflash_convert import work
from tests.dflash.conversion.forms import write_package, write_target


def run(place: Path, job: str, inputs: dict[str, Path], **parameters: Any) -> Any:
    (place / job).mkdir()
    request = {
        "job": "dflash_convert",
        "inputs": {slot: str(folder) for slot, folder in inputs.items()},
        "parameters": parameters,
    }
    (place / job / "request.json").write_text(json.dumps(request))
    perform("dflash_convert", work, place / job)
    return json.loads((place / job / "result.json").read_text())


def test_a_package_becomes_a_gguf_and_that_a_checkpoint(tmp_path: Path) -> None:
    package, target = write_package(tmp_path / "p"), write_target(tmp_path / "t")
    provenance = {"name": "Small-DFlash", "repo": "fast/Small-DFlash", "commit": "ab" * 20, "licence": "mit"}
    asked = {"to": "gguf", "entry": "fast/Small-DFlash", "provenance": provenance}
    result = run(tmp_path, "1", {"draft": package, "target": target}, **asked)
    assert (result["outcome"], result["exit_code"], result["facts"]["exact"]) == ("ok", 0, True)
    account, gguf = (each["path"] for each in result["outputs"])
    # Projections 9 x 65,536, fc 3 x 65,536, gains 4 x 256 + 2 x 64: 787,584 weights.
    assert (gguf, account) == ("Small-DFlash-788K-v1.0-Q4_1.gguf", "Small-DFlash-788K-v1.0-Q4_1.conversion.json")
    assert result["facts"]["conversion"]["out"]["files"] == [each for each in result["outputs"] if each["path"] == gguf]
    assert json.loads((tmp_path / "1" / "out" / account).read_text()) == result["facts"]["conversion"]
    assert {tool["name"] for tool in result["tools"]} == {"draftmill", "numpy", "gguf", "tokenizers"}
    result = run(tmp_path, "2", {"draft": tmp_path / "1" / "out"}, to="hf", entry="fast/Small-DFlash")
    assert [each["path"] for each in result["outputs"]] == ["config.json", "conversion.json", "model.safetensors"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"to": "onnx", "entry": "a/b"}, "dflash_convert.to"),
    ({"to": "hf"}, "dflash_convert.entry"),
    ({"to": "q4nx", "entry": "a/b", "encoding": "q8"}, "dflash_convert.encoding"),
    ({"to": "gguf", "entry": "a/b", "provenance": {"colour": "red"}}, "dflash_convert.provenance"),
    ({"to": "gguf", "entry": "a/b", "converter": "mine"}, "dflash_convert.converter"),
    ({"to": "gguf", "entry": "a/b", "converter": "stock", "stock_converter": "/none"}, "convert.stock_missing"),
    ({"to": "gguf", "entry": "a/b", "outtype": "q2"}, "dflash.outtype"),
    ({"to": "gguf", "entry": "a/b"}, "dflash.target_needed"),
]


@pytest.mark.parametrize(("parameters", "code"), WRONG)
def test_a_wrong_parameter_is_named(parameters: dict[str, Any], code: str, tmp_path: Path) -> None:
    result = run(tmp_path, "job", {"draft": write_package(tmp_path / "p")}, **parameters)
    assert (result["outcome"], result["exit_code"], result["error_code"]) == ("failed", 78, code)
    assert result["outputs"] == []


def test_a_refused_draft_is_final(tmp_path: Path) -> None:
    result = run(tmp_path, "job", {"draft": tmp_path}, to="hf", entry="a/b")
    assert (result["outcome"], result["exit_code"]) == ("refused", 65)
    assert [each["code"] for each in result["refusals"]] == ["dflash.source_not_a_draft"]
