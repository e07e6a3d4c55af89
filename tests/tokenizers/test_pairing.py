"""llama.cpp's rule for a pair, at its boundaries; each vocabulary differs from the base in one thing."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftmill.tokenizers.ggml import read_gguf
from draftmill.tokenizers.pairing import pair, ruled
from draftmill.tokenizers.vocabulary import Vocabulary
from tests.support.inputs import ROOT
from tests.tokenizers.test_ggml import CONTROL, NORMAL, UNUSED, USER, write_gguf

TOKENS = [f"t{token}" for token in range(200)]


def vocabulary(
    folder: Path,
    *,
    rows: int = 200,
    change: dict[int, str] | None = None,
    types: dict[int, int] | None = None,
    **keys: Any,
) -> Vocabulary:
    tokens = TOKENS + [f"[PAD{token}]" for token in range(200, rows)]
    for token, text in (change or {}).items():
        tokens[token] = text
    kinds = [CONTROL if token < 3 else NORMAL for token in range(200)] + [UNUSED] * (rows - 200)
    for token, kind in (types or {}).items():
        kinds[token] = kind
    stated = {"pre": "qwen2", "bos_token_id": 1, "eos_token_id": 2, "add_bos_token": False, "add_eos_token": False}
    keys = {name: value for name, value in (stated | keys).items() if value is not None}
    name = str(len(list(folder.iterdir()))) + ".gguf"
    return read_gguf(write_gguf(folder / name, tokens[:rows], kinds[:rows], **{"merges": ["a b"]} | keys))


CASES: list[tuple[str, dict[str, Any], dict[str, Any], str, list[str]]] = [
    ("equal", {}, {}, "compatible", []),
    ("128 rows more", {}, {"rows": 328}, "compatible with remarks", []),
    ("129 rows more", {}, {"rows": 329}, "refused", ["pair_size"]),
    ("129 rows fewer", {"rows": 329}, {}, "refused", ["pair_size"]),
    ("another text at id 4", {}, {"change": {4: "x"}}, "compatible with remarks", []),
    ("another text at id 5", {}, {"change": {5: "x"}}, "refused", ["pair_text"]),
    ("another text at the last id", {}, {"change": {199: "x"}}, "refused", ["pair_text"]),
    ("a token where the other pads", {"rows": 201, "change": {200: "x"}}, {"rows": 201}, "refused", ["pair_text"]),
    ("a token beyond the shorter", {"rows": 201, "change": {200: "x"}}, {}, "compatible with remarks", []),
    ("another bos, not added", {}, {"bos_token_id": 0}, "compatible with remarks", []),
    ("bos added by one", {"add_bos_token": True}, {}, "refused", ["pair_add_bos"]),
    (
        "another bos, added",
        {"add_bos_token": True},
        {"add_bos_token": True, "bos_token_id": 0},
        "refused",
        ["pair_bos"],
    ),
    ("another eos, not added", {}, {"eos_token_id": 0}, "compatible with remarks", []),
    ("eos added by one", {}, {"add_eos_token": True}, "refused", ["pair_add_eos"]),
    (
        "another eos, added",
        {"add_eos_token": True},
        {"add_eos_token": True, "eos_token_id": 0},
        "refused",
        ["pair_eos"],
    ),
    ("another type", {}, {"model": "llama"}, "refused", ["pair_kind"]),
    ("another pre-tokenizer", {}, {"pre": "llama-bpe"}, "compatible with remarks", []),
    (
        "silence under llama-bpe means a bos",
        {},
        {"pre": "llama-bpe", "add_bos_token": None},
        "refused",
        ["pair_add_bos"],
    ),
    (
        "silence under tekken means a bos",
        {"add_bos_token": True, "pre": "tekken"},
        {"add_bos_token": None, "pre": "tekken"},
        "compatible",
        [],
    ),
    (
        "silence of a SentencePiece file means a bos",
        {"model": "llama", "pre": None, "add_bos_token": True},
        {"model": "llama", "pre": None, "add_bos_token": None},
        "compatible",
        [],
    ),
    ("silence about the eos means none", {}, {"add_eos_token": None}, "compatible", []),
    ("silence under qwen2 means none", {}, {"add_bos_token": None}, "compatible", []),
    ("silence about the bos is id 11", {"bos_token_id": 11}, {"bos_token_id": None}, "compatible", []),
]


@pytest.mark.parametrize(("target", "draft", "verdict", "codes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_pair_is_judged_as_the_runtime_does(
    target: dict[str, Any], draft: dict[str, Any], verdict: str, codes: list[str], tmp_path: Path
) -> None:
    pairing = pair(vocabulary(tmp_path, **target), vocabulary(tmp_path, **draft))
    assert pairing.verdict == verdict
    assert [refusal.code for refusal in pairing.refusals] == [f"tokenizer.{code}" for code in codes]


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    pairing = pair(vocabulary(tmp_path), vocabulary(tmp_path, change={9: "x", 7: "y", 3: "z"}))
    (refusal,) = pairing.refusals
    assert (refusal.where, refusal.measured, refusal.expected) == ("id 7", "y", "t7")
    assert "2 ids" in refusal.sentence
    assert "id 3 differs, which the runtime ignores: target 't3', draft 'z'" in pairing.remarks


def test_what_the_runtime_ignores_is_told_and_nothing_else(tmp_path: Path) -> None:
    base = vocabulary(tmp_path)
    assert pair(base, vocabulary(tmp_path, change={5: "x"})).remarks == ()
    assert pair(base, replace(base, stated={"merges": ["b a"]})).remarks == (
        "merges differ, which the runtime ignores: at [0] target 'a b', draft 'b a'",
    )
    assert pair(base, replace(base, stated={})).verdict == "compatible"


def test_a_tokenizer_json_that_is_silent_about_the_bos_is_told(tmp_path: Path) -> None:
    silent = replace(vocabulary(tmp_path), add_bos=None, pre=None)
    pairing = pair(vocabulary(tmp_path), silent)
    assert pairing.remarks == ("the draft does not say whether it adds a bos; taken as no, its pre-tokenizer decides",)
    assert [r.code for r in pair(vocabulary(tmp_path, add_bos_token=True), silent).refusals] == [
        "tokenizer.pair_add_bos"
    ]


def test_llama_cpp_itself_reads_these_files_and_fails_at_the_same_rule(tmp_path: Path) -> None:
    paths = []
    for _, target, draft, _, _ in CASES:
        paths += [vocabulary(tmp_path, **target).source, vocabulary(tmp_path, **draft).source]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.tokenizers.runtime_rule", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = dict(zip((case[0] for case in CASES), json.loads(answer.stdout), strict=True))
    assert said == {name: next(iter(codes), None) for name, _, _, _, codes in CASES}


UNHEEDED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "pre-tokenizer",
        {},
        {"pre": "gpt-2"},
        "pre-tokenizers differ, which the runtime ignores: target qwen2, draft gpt-2",
    ),
    (
        "one merge",
        {},
        {"merges": ["a b", "c d"]},
        "merges differ, which the runtime ignores: at [1] target 'nothing', draft 'c d'",
    ),
    (
        "one score",
        {"scores": [0.0] * 200},
        {"scores": [0.0] * 150 + [0.5] + [0.0] * 49},
        "scores differ, which the runtime ignores: at id 150 target 0.0, draft 0.5",
    ),
    (
        "a score that is no number",
        {"scores": [0.0] * 200},
        {"scores": [float("nan")] + [0.0] * 199},
        "scores differ, which the runtime ignores: at id 0 target 0.0, draft 'nan'",
    ),
    (
        "a normal token that is user-defined",
        {},
        {"types": {150: USER}},
        "token types differ, which the runtime ignores: at id 150 target 'nothing', draft 'user-defined'",
    ),
    (
        "a control token that is normal",
        {},
        {"types": {2: NORMAL}},
        "token types differ, which the runtime ignores: at id 2 target 'control', draft 'nothing'",
    ),
    ("a text below 5", {}, {"change": {0: "x"}}, "id 0 differs, which the runtime ignores: target 't0', draft 'x'"),
    ("rows", {}, {"rows": 201}, "token counts differ within the allowance: target 200, draft 201"),
    ("bos", {}, {"bos_token_id": 0}, "bos ids differ, which the runtime ignores: target 1, draft 0"),
    ("eos", {}, {"eos_token_id": 0}, "eos ids differ, which the runtime ignores: target 2, draft 0"),
]


@pytest.mark.parametrize(("target", "draft", "remark"), [c[1:] for c in UNHEEDED], ids=[c[0] for c in UNHEEDED])
def test_one_thing_that_the_runtime_ignores_is_one_remark(
    target: dict[str, Any], draft: dict[str, Any], remark: str, tmp_path: Path
) -> None:
    pairing = pair(vocabulary(tmp_path, **target), vocabulary(tmp_path, **draft))
    assert (pairing.refusals, pairing.remarks, pairing.first_difference) == ((), (remark,), remark)


def test_scores_of_one_side_are_no_difference(tmp_path: Path) -> None:
    assert pair(vocabulary(tmp_path), vocabulary(tmp_path, scores=[0.0] * 200)).verdict == "compatible"


def test_the_first_rule_that_fails_comes_before_any_remark(tmp_path: Path) -> None:
    pairing = pair(vocabulary(tmp_path), vocabulary(tmp_path, change={3: "z", 7: "x" * 1000}))
    assert pairing.first_difference == f"id 7: target 't7', draft {'x' * 117 + '...'!r}"
    assert pairing.remarks == ("id 3 differs, which the runtime ignores: target 't3', draft 'z'",)


def test_what_is_assumed_for_a_silent_file_is_named(tmp_path: Path) -> None:
    silent = {"add_bos_token": None, "add_eos_token": None, "bos_token_id": None, "eos_token_id": None}
    rule = ruled(vocabulary(tmp_path, **silent))
    assert (rule.add_bos, rule.bos, rule.add_eos, rule.eos) == (False, 11, False, 11)
    assert rule.assumed == ("add_bos", "bos", "add_eos", "eos")
    assert ruled(vocabulary(tmp_path)).assumed == ()
    # An id that only one states is no difference, as long as nobody adds it.
    assert pair(vocabulary(tmp_path), vocabulary(tmp_path, bos_token_id=None)).verdict == "compatible"
    added = vocabulary(tmp_path, add_bos_token=True), vocabulary(tmp_path, add_bos_token=True, bos_token_id=None)
    assert [refusal.code for refusal in pair(*added).refusals] == ["tokenizer.pair_bos"]
