"""`draftmill validate --run`: the gate and a run on a target in one verdict and one report."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from draftmill.cli import main, validate
from draftmill.dflash.packing import pack
from draftmill.measurement.gate_run import with_run
from draftmill.measurement.record import Accepted, Divergence
from draftmill.q4nx.encodings import Kind
from tests.support.dflash_packages import edit_config, real_draft_or_skip, tiny
from tests.support.hugging_face_target import write_target
from tests.support.smollm2_target import smollm2_target

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module", autouse=True)
def mounted() -> None:
    main.app.command("validate")(validate.validate)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("validate-run")
    write_target(place / "target")
    tiny(place / "package", 1)
    (place / "prompts.jsonl").write_text(json.dumps({"name": "one", "kind": "counting", "text": "w1 w2 w3"}))
    return place


def run(given: Path, package: Path, *words: object, target: Path | None = None) -> tuple[int, Any]:
    fixed = [package, "--run", "--target", target or given / "target", "--prompts", given / "prompts.jsonl"]
    result = CliRunner().invoke(main.app, ["validate", *map(str, fixed), "--max-new", "8", "--json", *map(str, words)])
    return result.exit_code, json.loads(result.stdout)


def verdicts(value: Any) -> dict[str, str]:
    return {check["id"]: check["verdict"] for check in value["checks"] if check["id"].startswith("run.")}


@pytest.fixture(scope="module")
def of_random(given: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Any, Path]:
    """A random draft on a random target: nothing is accepted."""
    report = tmp_path_factory.mktemp("report")
    return *run(given, given / "package", "--report", report), report


def test_a_package_whose_drafts_are_never_accepted_is_refused_for_it(of_random):
    code, value, _ = of_random
    assert (code, value["verdict"]) == (1, "refused")
    assert verdicts(value) == {"run.possible": "pass", "run.lossless": "pass", "run.accepted": "refused"}
    refused = [refusal["code"] for check in value["checks"] for refusal in check["refusals"]]
    assert refused == ["run.nothing_accepted"], "the gate itself has nothing against it"
    assert value["sentence"].startswith("passes 55 of 55 checks; run on target: 0 of ")


def test_gate_and_run_are_in_one_report_of_three_forms(of_random):
    _, value, report = of_random
    assert json.loads((report / "gate.json").read_text()) == value
    record = Accepted.model_validate_json(json.dumps(value["run"]["record"]))
    assert record.acceptance and value["run"]["figures"]["accepted"] == 0
    for name in ("report.md", "report.html"):
        text = (report / name).read_text()
        assert "drafts are accepted" in text and "no tensor is missing" in text and "run.nothing_accepted" in text
        assert "Acceptance, each figure by its definition" in text
    assert (report / "rounds.svg").is_file()


def test_a_text_that_is_not_the_targets_own_withholds_the_verdict(of_random):
    _, value, _ = of_random
    gate = {**value, "verdict": "pass", "checks": [each for each in value["checks"] if each["id"][:4] != "run."]}
    record = Accepted.model_validate_json(json.dumps(value["run"]["record"]))
    text = record.texts[0]
    other = text.model_copy(update={"with_draft": (*text.with_draft[:-1], 7)})
    for gap, kind, verdict in ((3.0, "clear gap", "no verdict"), (0.01, "near-tie", "refused")):
        divergence = Divergence(
            prompt="one", pair=0, position=7, alone=text.alone[7], with_draft=7, best=text.alone[7], gap=gap, kind=kind
        )
        parted = record.model_copy(update={"texts": (other,), "divergences": (divergence,)})
        found = with_run(gate, parted)
        assert found["verdict"] == verdict
        assert verdicts(found)["run.lossless"] == ("undetermined" if kind == "clear gap" else "pass")


def test_a_target_that_it_cannot_run_on_leaves_no_verdict(given, tmp_path):
    write_target(tmp_path / "other", hidden_size=128)
    code, value = run(given, given / "package", target=tmp_path / "other")
    assert (code, value["verdict"], value["run"]["code"]) == (3, "no verdict", "dflash.target_hidden")
    assert verdicts(value) == {"run.possible": "undetermined"}


def test_what_breaks_says_nothing_of_the_package(given):
    """As with --publish, where the job fails."""
    command = [given / "package", "--run", "--target", given / "target", "--prompts", given / "prompts.jsonl"]
    ended = CliRunner().invoke(main.app, ["validate", *map(str, command), "--torch-device", "cuda:63"])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "cuda:63" in ended.stderr


def test_a_package_that_the_gate_refuses_is_not_run(given, tmp_path):
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {"head_dim": 32})
    code, value = run(given, tmp_path / "p")
    assert (code, value["verdict"], value["run"]["word"]) == (1, "refused", "not run")
    assert verdicts(value) == {} and "record" not in value["run"]


@pytest.mark.parametrize("words", [["--run"], ["--target", "."], ["--run", "--target", "nowhere"]])
def test_wrong_usage(given, words):
    result = CliRunner().invoke(main.app, ["validate", str(given / "package"), *words])
    assert result.exit_code == 2


def test_every_option_of_the_run_is_refused_by_name_without_one(given):
    words = ["--target", ".", "--dtype", "float32", "--prompts", "x", "--torch-device", "cpu", "--max-new", "64"]
    for each, names in (([*words, "--quick"], {*words[::2], "--quick"}), (["--quick"], {"--quick"})):
        result = CliRunner().invoke(main.app, ["validate", str(given / "package"), *each], env={"COLUMNS": "200"})
        assert result.exit_code == 2 and "belongs to --run" in result.stderr
        assert {name for name in (*words[::2], "--quick") if name in result.stderr} == names


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["PACKAGE", "--runner", "docker", "--store", "s"], {"--runner", "--store"}),
        (["PACKAGE", "--sign-key", "k"], {"--sign-key"}),
        (["--selftest", "--report", "r", "--publish"], {"--report", "--publish"}),
    ],
)
def test_an_option_that_nothing_would_heed_is_refused_by_name(given, tmp_path, words, named):
    words = [str(given / "package") if each == "PACKAGE" else each for each in words]
    result = CliRunner().invoke(main.app, ["validate", *words], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    place = next(line for line in result.stderr.splitlines() if "Invalid value" in line)
    assert {each for each in ("--runner", "--store", "--sign-key", "--report", "--publish") if each in place} >= named
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_a_real_draft_that_was_packed_passes_with_what_it_accepts(given, tmp_path, tmp_path_factory):
    draft = real_draft_or_skip()
    target = smollm2_target(tmp_path_factory)
    pack(draft, tmp_path / "package", Kind.Q4_1)
    code, value = run(given, tmp_path / "package", target=target)
    assert (code, value["verdict"]) == (0, "pass")
    assert verdicts(value) == {"run.possible": "pass", "run.lossless": "pass", "run.accepted": "pass"}
    assert value["run"]["lossless"] == "identical"
    assert 0 < value["run"]["figures"]["accepted"] < value["run"]["figures"]["offered"]
