"""The job that holds a draft's vocabulary against those of targets."""

import json
import shutil
from pathlib import Path
from typing import Any

from jobs.contract import Request, Result, perform
from jobs.pair import work
from tests.support.inputs import qwen3_tokenizer

FILES = ("tokenizer.json", "tokenizer_config.json")


def write_target(folder: Path, config: dict[str, Any] | None, tokenizer: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name in FILES if tokenizer else ():
        shutil.copy(qwen3_tokenizer() / name, folder / name)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def judged(tmp_path: Path, targets: dict[str, Path]) -> Result:
    draft = write_target(tmp_path / "draft", None)
    slots = {f"target{number}": name for number, name in enumerate(targets)}
    folder = tmp_path / "job"
    folder.mkdir()
    request = Request(
        job="pair",
        inputs={"draft": draft} | {slot: targets[name] for slot, name in slots.items()},
        parameters={"draft_rows": 151936, "targets": slots, "trained_for": ["Qwen/Qwen3-8B"]},
    )
    (folder / "request.json").write_text(request.model_dump_json())
    return perform("pair", work, folder)


def test_each_target_is_judged_with_the_rows_that_its_config_states(tmp_path: Path) -> None:
    result = judged(
        tmp_path,
        {
            "Qwen/Qwen3-8B": write_target(tmp_path / "a", {"vocab_size": 151936}),
            "acme/larger": write_target(tmp_path / "b", {"text_config": {"vocab_size": 152192}}),
        },
    )
    assert result.outcome == "ok"
    found = {pair["target"]: pair for pair in result.facts["pairs"]}
    assert (found["Qwen/Qwen3-8B"]["verdict"], found["Qwen/Qwen3-8B"]["off_pair"]) == ("compatible", False)
    # 256 rows more are more than llama.cpp takes for padding.
    assert [each["code"] for each in found["acme/larger"]["refusals"]] == ["tokenizer.pair_size"]
    assert found["acme/larger"]["off_pair"] is True


def test_a_target_that_cannot_be_read_is_said_and_the_others_are_judged(tmp_path: Path) -> None:
    result = judged(
        tmp_path,
        {
            "Qwen/Qwen3-8B": write_target(tmp_path / "a", {"vocab_size": 151936}),
            "acme/bare": write_target(tmp_path / "b", {"vocab_size": 151936}, tokenizer=False),
            "acme/unsized": write_target(tmp_path / "c", {}),
            "acme/small": write_target(tmp_path / "d", {"vocab_size": 151000}),
        },
    )
    assert [pair["target"] for pair in result.facts["pairs"]] == ["Qwen/Qwen3-8B"]
    reasons = {name: why.partition(" ")[0] for name, why in result.facts["not_judged"].items()}
    assert reasons == {
        "acme/bare": "pair.no_tokenizer",
        "acme/unsized": "pair.no_rows",
        "acme/small": "pair.no_rows",
    }
