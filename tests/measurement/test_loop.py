"""`draftmill measure acceptance` with a Hugging Face target: the own loop, its record, and what is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draftmill.cli.measure import app
from draftmill.dflash.package import write
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.measurement.record import Accepted, load
from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Kind
from tests.support.hugging_face_target import write_target

torch = pytest.importorskip("torch", reason="torch is not installed")

PROMPTS = [("one", "counting", "w1 w2 w3"), ("two", "counting", "w9 w8"), ("three", "other", "w100 w7 w7 w30")]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("loop")
    write_target(place / "target")
    for generation, kind in ((1, Kind.Q4_1), (2, Kind.Q4_K)):
        config = synthetic_config(generation)
        write(place / f"draft{generation}", config, synthetic_tensors(config), encoding=kind)
    lines = [json.dumps({"name": name, "kind": kind, "text": text}) for name, kind, text in PROMPTS]
    (place / "prompts.jsonl").write_text("\n".join(lines))
    return place


def run(given: Path, *words: object, draft: str = "draft1", target: str = "target") -> tuple[int, str, str]:
    fixed = ["--target", given / target, "--drafter", given / draft, "--prompts", given / "prompts.jsonl"]
    result = CliRunner().invoke(
        app, ["acceptance", *map(str, fixed), *map(str, words)], env={"COLUMNS": "200"}, catch_exceptions=True
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        return 1, result.stdout, f"{type(result.exception).__name__}: {result.exception}"
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("draft", ["draft1", "draft2"])
def test_a_draft_is_measured_and_the_text_is_the_targets_own(given, tmp_path, draft):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    code, out, err = run(given, "--max-new", 12, "--report", tmp_path, draft=draft)
    assert (code, err) == (0, "")
    assert "all 3 texts are the target's own greedy text, token for token" in out
    assert "Rounds by accepted drafts" in out and "counting" in out and "three" in out
    record = load((tmp_path / "report.json").read_bytes())
    assert isinstance(record, Accepted) and record.acceptance is not None and record.texts is not None
    # transformers' own generate, its own template: nothing of ours.
    tokenizer = AutoTokenizer.from_pretrained(given / "target")
    model = AutoModelForCausalLM.from_pretrained(given / "target", dtype=torch.float32)
    for (name, _, text), said in zip(
        PROMPTS, sorted(record.texts, key=lambda each: ["one", "two", "three"].index(each.prompt)), strict=True
    ):
        given_ids = tokenizer(f"<user>{text}<bot>", return_tensors="pt", add_special_tokens=False)
        expected = model.generate(**given_ids, max_new_tokens=12, do_sample=False)[0, given_ids["input_ids"].shape[1] :]
        assert said.prompt == name
        assert list(said.with_draft) == list(said.alone) == expected.tolist()
    assert record.regime.block == 8 and record.regime.n_max == 7
    assert record.regime.spec_type == ("dflash" if draft == "draft1" else "dflash2")
    for name in ("report.md", "report.html"):
        assert "token for token" in (tmp_path / name).read_text()


def test_the_command_in_the_report_measures_the_same_again(given, tmp_path):
    code, out, _ = run(
        given, "--max-new", 8, "--json", "--weights", "packed", "--window", "left", "--fallback", 0.5, "--form", "raw"
    )
    assert code == 0
    record = Accepted.model_validate(json.loads(out)["record"], strict=False)
    assert record.regime.spec_type == "dflash, window left, packed weights"
    assert record.regime.fallback == 0.5
    from draftmill.reports.command_line import command_line

    line = " ".join(command_line(record))
    assert "--weights packed --window left --fallback 0.5" in line and "--form raw" in line
    # A random draft is hardly ever right, so four rounds are drafted and the rest is decoded plainly.
    assert all(trace.undrafted >= trace.passes - 4 for trace in record.acceptance.answers)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hidden_size": 128}, "dflash.target_hidden"),
        ({"layers": 13}, "dflash.target_depth"),
        ({"layers": 8}, "target.tap_outside"),
    ],
)
def test_another_target_is_refused_by_name(given, tmp_path, changes, code):
    write_target(tmp_path / "other", **changes)
    _, out, _ = run(given, "--json", target=tmp_path / "other")
    assert json.loads(out)["code"] == code


def test_a_prompt_that_leaves_no_room_is_refused(given):
    _, out, _ = run(given, "--json", "--max-new", 250)
    assert json.loads(out)["code"] == "measurement.context"


@pytest.mark.parametrize("words", [["--route", "counters"], ["--window", "x"], ["--weights", "x"], ["--fallback", "2"]])
def test_wrong_usage(given, words):
    assert run(given, *words)[0] == 2


def test_every_option_of_engines_is_refused_by_name_even_at_its_default(given):
    words = ["--n-max", 4, "--n-min", 0, "--p-min", 0, "--seed", 5, "--context", 256, "--engine", "x"]
    code, _, err = run(given, *words, "--library-path", ".")
    assert code == 2 and "belongs to an engine" in err
    assert all(name in err for name in (*words[::2], "--library-path"))
    code, _, err = run(given, "--seed", 0)
    assert code == 2 and "--seed" in err and "--context" not in err, "only what is given is named"


@pytest.mark.parametrize("words", [["--dtype", "float32"], ["--causal"], ["--fallback", 0.5]])
def test_an_option_of_the_own_loop_is_refused_beside_files(given, words):
    code, _, err = run(given, *words, draft="prompts.jsonl", target="prompts.jsonl")
    assert code == 2 and words[0] in err and "belongs to the mill's own loop" in err


def test_a_folder_and_a_file_do_not_pair(given):
    assert run(given, draft="prompts.jsonl")[0] == 2


def test_a_report_whose_texts_are_not_those_of_its_answers_is_refused(given, tmp_path):
    code, out, _ = run(given, "--max-new", 8, "--json")
    value = json.loads(out)
    for spoil in (lambda texts: texts.clear(), lambda texts: texts.pop(), lambda texts: texts[0]["with_draft"].pop()):
        spoiled = json.loads(json.dumps(value))
        spoil(spoiled["record"]["texts"])
        with pytest.raises(Refused):
            load(json.dumps(spoiled).encode())
    assert code == 0 and load(json.dumps(value).encode())
