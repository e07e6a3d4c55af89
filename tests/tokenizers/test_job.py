"""The tokenizer job by its contract."""

import json
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file
from jobs.contract import Result, perform
from jobs.tokenizer import work
from tests.tokenizers import synthetic as s

SIDE = {"eos_token": "<eos>", "bos_token": "<bos>", "chat_template": "{{ messages }}"}


def run(folder: Path, inputs: dict[str, Path], **parameters: Any) -> Result:
    folder.mkdir()
    request = {
        "job": "tokenizer",
        "inputs": {slot: str(path) for slot, path in inputs.items()},
        "parameters": parameters,
    }
    (folder / "request.json").write_text(json.dumps(request))
    return perform("tokenizer", work, folder)


def draft(folder: Path) -> Path:
    return s.write_draft(folder, 16, model_type="llama", bos_token_id=10, eos_token_id=11)


def donor(folder: Path) -> Path:
    s.write_tokenizer(folder, {10: "<bos>", 11: "<eos>"}, SIDE)
    (folder / "merges.txt").write_text("")
    (folder / "README.md").write_text("not a tokenizer file")
    return folder


def test_the_outputs_are_the_files_to_use_and_the_proof(tmp_path: Path) -> None:
    inputs = {"model": draft(tmp_path / "model"), "donor": donor(tmp_path / "donor")}
    result = run(tmp_path / "job", inputs, donor_source="a/b@" + "0" * 40, base_models=["a/b"])
    assert result.outcome == "ok", result.error
    assert [output.path for output in result.outputs] == ["proof.json", "tokenizer.json", "tokenizer_config.json"]
    proof = json.loads((tmp_path / "job" / "out" / "proof.json").read_text())
    assert proof == result.facts["proof"]
    for name, digest in proof["files"].items():
        assert digest == sha256_file(tmp_path / "donor" / name) == sha256_file(tmp_path / "job" / "out" / name)
    assert [tool.name for tool in result.tools] == ["tokenizers"]


def test_a_refusal_leaves_no_output(tmp_path: Path) -> None:
    result = run(tmp_path / "job", {"model": draft(tmp_path / "model")})
    assert (result.outcome, result.exit_code) == ("refused", 65)
    assert [refusal.code for refusal in result.refusals] == ["tokenizer.weights_only"]
    assert list((tmp_path / "job" / "out").iterdir()) == []


def test_a_donor_without_a_source_is_a_faulty_request(tmp_path: Path) -> None:
    inputs = {"model": draft(tmp_path / "model"), "donor": donor(tmp_path / "donor")}
    result = run(tmp_path / "job", inputs)
    assert (result.outcome, result.exit_code, result.error_code) == ("failed", 78, "tokenizer.donor_source")


def test_the_same_request_gives_the_same_bytes(tmp_path: Path) -> None:
    inputs = {"model": draft(tmp_path / "model"), "donor": donor(tmp_path / "donor")}
    first, second = (run(tmp_path / name, inputs, donor_source="a/b@main") for name in ("one", "two"))
    assert [output.sha256 for output in first.outputs] == [output.sha256 for output in second.outputs]
