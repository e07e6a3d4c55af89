"""`draftmill dflash convert` as a person and a script call it."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from draftmill.cli.dflash import app
from draftmill.cli.main import Verbs
from draftmill.measurement.servers.serve_line import Use, find_engine, serve_line
from tests.dflash.conversion.forms import write_hf, write_target

draftmill = typer.Typer(cls=Verbs)
draftmill.add_typer(app, name="dflash")


@draftmill.callback()
def root() -> None:
    """As the command line mounts it."""


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(draftmill, ["dflash", "convert", *map(str, words)], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("command")
    write_hf(place / "hf")
    write_target(place / "target")
    return place


def test_a_table_tells_what_became_of_the_tensors(made: Path, tmp_path: Path) -> None:
    code, out, err = run(made / "hf", tmp_path / "p", "--to", "q4nx", "--encoding", "q4_1")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    # 7 projections of one layer; fc and 6 norms stay what they are.
    assert ["7", "BF16", "Q4_1", "quantised"] in [line[:4] for line in lines]
    assert ["7", "BF16", "BF16", "kept", "0.00e+00", "0.00e+00"] in lines
    assert "not every value is what it was" in out
    assert f"written {tmp_path / 'p'}" in out


def test_what_was_pulled_is_served_by_blocks(made: Path, tmp_path: Path) -> None:
    run(made / "hf", tmp_path / "d.gguf", "--to", "gguf", "--target", made / "target")
    line = serve_line(find_engine(None), tmp_path / "d.gguf")
    # A block of 8: the anchor's row drafts nothing.
    assert "--spec-draft-n-max 7" in line and line.endswith("--spec-type draft-dflash")
    assert "--spec-draft-n-max 3" in serve_line(find_engine(None), tmp_path / "d.gguf", Use(3))


def test_a_target_that_is_not_there_is_wrong_usage(made: Path, tmp_path: Path) -> None:
    code, out, err = run(made / "hf", tmp_path / "d.gguf", "--to", "gguf", "--target", tmp_path / "absent")
    assert (code, out) == (2, "")
    assert "--target" in err and "absent is not there" in err


def test_json_is_the_whole_account(made: Path, tmp_path: Path) -> None:
    code, out, _ = run(made / "hf", tmp_path / "d.gguf", "--to", "gguf", "--target", made / "target", "--json")
    value = json.loads(out)
    assert (code, value["outcome"], value["written"]) == (0, "ok", str(tmp_path / "d.gguf"))
    assert json.loads((tmp_path / "d.conversion.json").read_text()).items() <= value.items()
    assert len(value["tensors"]) == 14


GGUF = ("--to", "gguf", "--target", "target")
WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "another form": (("--to", "onnx"), "--to"),
    "another encoding": (("--to", "q4nx", "--encoding", "q8"), "--encoding"),
    "another type": ((*GGUF, "--outtype", "q2"), "--outtype"),
    "an encoding of a GGUF": ((*GGUF, "--encoding", "q4_1"), "--encoding"),
    "a type of a package": (("--to", "q4nx", "--outtype", "f16"), "--outtype"),
    "a target of a checkpoint": (("--to", "hf", "--target", "target"), "--target"),
    "another converter": ((*GGUF, "--converter", "mine"), "--converter"),
    "a vocabulary of no folder": (("--to", "hf", "--converter", "stock"), "--converter"),
    "a converter that nothing asks for": ((*GGUF, "--stock-converter", "x.py"), "--stock-converter"),
    "an interpreter that nothing asks for": ((*GGUF, "--stock-python", "x"), "--stock-python"),
    "no form": ((), "--to"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_usage_names_the_option_and_writes_nothing(
    what: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    words, named = WRONG[what]
    code, _, err = run(made / "hf", tmp_path / "out", *words)
    assert code == 2
    assert re.search(rf"(for|option) '?{named}", err), err
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_a_sentence_and_json_where_that_is_asked(made: Path, tmp_path: Path) -> None:
    code, _, err = run(made / "hf", tmp_path / "p", "--to", "q4nx")
    assert code == 1
    assert "--encoding q4_1 or q4_k" in err
    code, out, _ = run(made / "hf", tmp_path / "p", "--to", "q4nx", "--json")
    assert (code, json.loads(out)["code"]) == (1, "dflash.encoding_not_stated")
    code, out, _ = run(made / "hf", tmp_path / "d.gguf", "--to", "gguf", "--json")
    assert (code, json.loads(out)["code"]) == (1, "dflash.target_needed")
