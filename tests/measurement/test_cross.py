"""`draftmill measure cross`: a real draft by three loops that share no line, and what is said where one cannot run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draftmill.cli.measure import app
from draftmill.dflash.package import write
from draftmill.dflash.rope import Rope
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.measurement.cross_files import check_same_draft
from draftmill.measurement.cross_record import Cross, load_any
from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Kind
from tests.dflash.gguf_form.small import write_draft
from tests.support.dflash_packages import real_draft_or_skip
from tests.support.hugging_face_target import write_target
from tests.support.smollm2_target import smollm2_target

torch = pytest.importorskip("torch", reason="torch is not installed")

BUDGET = 16
CODE = 5
"""Of the recorded prompts: it accepts much."""


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cross", *map(str, words)], env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, list[int], list[object]]]:
    """Folder of the draft, that of the prompts, recorded accepted drafts of each round, and what every run says."""
    draft = real_draft_or_skip()
    prompt = json.loads((draft / "acceptance.json").read_text())["prompts"][CODE]
    place = tmp_path_factory.mktemp("cross")
    (place / "prompts.jsonl").write_text(json.dumps({"name": "code", "kind": "code", "text": prompt["prompt"]}))
    fixed = [
        "--drafter", draft, "--target", smollm2_target(tmp_path_factory), "--prompts", place / "prompts.jsonl",
        "--max-new", BUDGET, "--work", place / "work",
    ]  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as OMP_NUM_THREADS=1 does: every loop then takes one
    yield draft, place, [each - 1 for each in prompt["accepted"]], fixed
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_three_loops_give_the_recorded_rounds_of_a_real_draft(recorded, tmp_path):
    pytest.importorskip("xllamacpp")
    _, place, accepted, fixed = recorded
    code, out = run(*fixed, "--report", tmp_path)
    assert code == 0 and "agree: own loop against xllamacpp, transformers on 1 prompt" in out
    record = load_any((tmp_path / "report.json").read_bytes())
    assert isinstance(record, Cross) and record.own.acceptance and not record.absent
    lists = {route.name: [each.accepted for each in route.answers[0].rounds] for route in record.routes}
    lists["own loop"] = [each.accepted for each in record.own.acceptance.answers[0].rounds]
    for name, found in lists.items():
        # The last round ends at the budget of this run, not at the recording's.
        assert found[:-1] == accepted[: len(found) - 1], name
        assert found[-1] <= accepted[len(found) - 1]
    assert {each.cause for each in record.departures} <= {"budget end"}
    assert all(text.alone == text.with_draft for route in record.routes for text in route.texts)
    engine = record.routes[0]
    assert engine.target and engine.draft and engine.target.made and engine.draft.made
    assert engine.target.rounded == engine.draft.rounded == ()
    assert engine.regime.p_min == 0 and engine.regime.n_max == 7 and engine.regime.target_kv == "f32/f32"
    assert engine.regime.threads == record.own.regime.threads == record.options.threads == 1
    for name in ("report.md", "report.html"):
        assert "Where they depart, and why" in (tmp_path / name).read_text()
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "report.json")], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and "agree: own loop" in shown.stdout

    # The control: a gate lets fewer drafts through, and that is what is said. The GGUFs are taken again.
    made = sorted((place / "work" / "cross").iterdir())
    code, out = run(*fixed, "--p-min", 0.6, "--max-new", 8, "--json")
    assert sorted((place / "work" / "cross").iterdir()) == made
    gated = Cross.model_validate_json(json.dumps(json.loads(out)["record"]))
    assert code == 0 and json.loads(out)["results"]["word"] == "explained"
    assert {(each.route, each.cause) for each in gated.departures} == {
        ("xllamacpp", "p_min"),
        ("transformers", "budget end"),
    }


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made-up")
    write_target(place / "target")
    for generation, kind in ((1, Kind.Q4_1), (2, Kind.Q4_K)):
        config = synthetic_config(generation)
        write(place / f"draft{generation}", config, synthetic_tensors(config), encoding=kind)
    (place / "prompts.jsonl").write_text(json.dumps({"name": "one", "kind": "counting", "text": "w1 w2 w3"}))
    return place


def of_made_up(place: Path, draft: str, *words: object) -> tuple[int, str]:
    fixed = ["--drafter", place / draft, "--target", place / "target", "--prompts", place / "prompts.jsonl"]
    return run(*fixed, "--max-new", 8, "--threads", 1, "--work", place / "work", *words)


def test_a_route_that_cannot_run_says_why_and_the_others_run(made_up):
    """Its tokenizer is of words, which no converter takes; a package runs in transformers all the same."""
    code, out = of_made_up(made_up, "draft1", "--json")
    record = Cross.model_validate_json(json.dumps(json.loads(out)["record"]))
    assert [route.name for route in record.routes] == ["transformers"]
    assert [(each.name, each.code.partition(".")[0]) for each in record.absent] == [("xllamacpp", "tokenizer")]
    assert code == (1 if any(each.cause == "unexplained" for each in record.departures) else 0)


def test_where_no_other_route_runs_there_is_no_verdict(made_up):
    code, out = of_made_up(made_up, "draft2", "--engine", "none")
    assert code == 3
    assert "no verdict: no other route ran" in out and "transformers has no DFlash 2" in out


def test_a_record_that_contradicts_itself_is_not_loaded(made_up):
    _, out = of_made_up(made_up, "draft1", "--engine", "none", "--json")
    value = json.loads(out)
    assert load_any(json.dumps(value).encode())
    for spoil in (
        lambda record: record["routes"][0]["texts"].clear(),
        lambda record: record["routes"][0]["answers"][0].update(prompt="two"),
        lambda record: record["departures"].append(
            {"prompt": "one", "route": "x", "round": 0, "tokens": 1, "own": 1, "other": 0, "token": 1, "cause": "p_min",
             "gap": None, "evidence": "x"}
        ),
    ):  # fmt: skip
        spoiled = json.loads(json.dumps(value))
        spoil(spoiled["record"])
        with pytest.raises(Refused):
            load_any(json.dumps(spoiled).encode())


def test_a_gguf_of_another_draft_is_refused_before_anything_runs(made_up, tmp_path):
    """A scale that is no float32 is the same draft: a GGUF cannot hold more of it."""
    scaled = [
        {"factor": factor, "original_max_position_embeddings": 1024, "attention_factor": 1.1} for factor in (4.0, 8.0)
    ]
    same = {"input_embedding_scale": 50.596442562694074, "rope": Rope(1e6, "yarn", scaled[0])}
    other = {"block_size": 6, "rms_norm_eps": 2e-5, "rope": Rope(1e6, "yarn", scaled[1])}
    for name, changes in (("same", same), ("other", same | other)):
        write_draft(tmp_path / name, **changes)
    drafter = tmp_path / "same" / "checkpoint"
    check_same_draft(drafter, tmp_path / "same" / "draft.gguf", None)
    gguf = tmp_path / "other" / "draft.gguf"
    code, out = of_made_up(made_up, "draft1", "--drafter", drafter, "--drafter-gguf", gguf, "--json")
    refused = json.loads(out)
    assert (code, refused["code"]) == (1, "cross.other_draft")
    assert {each["where"]: (each["measured"], each["expected"]) for each in refused["refusals"]} == {
        "draft.gguf:block_size": (6, 8),
        "draft.gguf:rms_norm_eps": (2e-5, 1e-6),
        "draft.gguf:rope_scaling": (scaled[1], scaled[0]),
    }


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--engine", "none", "--kv", "f32", "--p-min", 0.5], {"--kv", "--p-min"}),
        (["--library-path", "."], {"--library-path"}),
        (["--drafter-gguf", __file__, "--draft-outtype", "f32"], {"--draft-outtype"}),
    ],
)
def test_an_option_that_nothing_would_heed_is_refused_by_name(made_up, words, named):
    fixed = ["cross", "--drafter", made_up / "draft1", "--target", made_up / "target"]
    result = CliRunner().invoke(app, [*map(str, fixed), *map(str, words)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    options = ("--kv", "--p-min", "--library-path", "--draft-outtype")
    assert {each for each in options if each in result.stderr} == named


@pytest.mark.parametrize(
    "words", [["--engine", "nothing"], ["--window", "x"], ["--target-gguf", "x"], ["--kv", "q8_0"]]
)
def test_wrong_usage(made_up, words):
    assert of_made_up(made_up, "draft1", *words)[0] == 2
