"""`draftmill dflash pack`: tables and bars for people, JSON for tools, and every bad ending named."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from draftmill.cli.dflash import app
from draftmill.cli.main import Verbs
from draftmill.dflash.package import Package
from tests.support.dflash_packages import SMALLEST, checkpoint

runner = CliRunner()
draftmill = typer.Typer(cls=Verbs)
draftmill.add_typer(app, name="dflash")


@draftmill.callback()
def root() -> None:
    """As the command line mounts it."""


def run(*words: object) -> tuple[int, str, str]:
    result = runner.invoke(draftmill, ["dflash", "pack", *map(str, words)], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


def test_an_empty_name_for_the_package_is_wrong_usage_and_not_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run(tmp_path / "hf", "")[0] == 2
    assert list((tmp_path / "here").iterdir()) == []


def test_a_packed_draft_shows_the_error_of_every_tensor(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    code, out, err = run(tmp_path / "hf", tmp_path / "draft", "--encoding", "q4_1")
    assert (code, err) == (0, "")
    assert "layers.0.mlp.down_proj.weight" in out
    assert "0.997" in out
    assert "written" in out
    with Package.open(tmp_path / "draft") as package:
        assert package.config.generation == 1


def test_json_is_one_object_with_everything(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", 2, **SMALLEST)
    code, out, err = run(tmp_path / "hf", tmp_path / "draft", "--json")
    found = json.loads(out)
    assert (code, err, found["outcome"], found["encoding"], found["generation"]) == (0, "", "ok", "q4_k", 2)
    # One layer: 11 + 4 tensors, 3 besides the layers, 3 of the selector.
    assert len(found["tensors"]) == 21
    assert {file["path"] for file in found["files"]} == {"config.json", "model.q4nx"}


def test_a_refusal_ends_with_1_and_names_every_finding(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST, extra={})
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"block_size": None, "head_dim": None}))
    code, out, err = run(tmp_path / "hf", tmp_path / "draft")
    assert (code, out) == (1, "")
    assert err.count("dflash.key_missing") == 2
    code, out, _ = run(tmp_path / "hf", tmp_path / "draft", "--json")
    found = json.loads(out)
    assert (code, found["outcome"]) == (1, "refused")
    assert [refusal["where"] for refusal in found["refusals"]] == ["config.json:head_dim", "config.json:block_size"]


def test_causality_can_be_told(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    path = tmp_path / "hf" / "config.json"
    content = json.loads(path.read_text())
    del content["dflash_config"]["causal"]
    path.write_text(json.dumps(content))
    code, _, err = run(tmp_path / "hf", tmp_path / "draft")
    assert code == 1
    assert "--causal" in err
    assert "--non-causal" in err
    assert run(tmp_path / "hf", tmp_path / "draft", "--non-causal")[0] == 0


@pytest.mark.parametrize("words", [("absent", "out"), (".", "out", "--encoding", "q8")])
def test_wrong_usage_ends_with_2(words: tuple[str, ...]) -> None:
    assert run(*words)[0] == 2


def test_an_output_that_is_there_is_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "mine").touch()
    code, _, err = run(tmp_path / "hf", tmp_path / "draft")
    assert code == 1
    assert "is there already" in err
    assert os.listdir(tmp_path / "draft") == ["mine"]


@pytest.mark.parametrize("as_json", [True, False])
def test_files_that_cannot_be_read_or_written_are_a_sentence_not_a_traceback(tmp_path: Path, as_json: bool) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    (tmp_path / "file").touch()
    code, out, err = run(tmp_path / "hf", tmp_path / "file" / "draft", *(["--json"] if as_json else []))
    assert code == 1
    assert "dflash.input_output" in (out if as_json else err)
    assert "Traceback" not in err
