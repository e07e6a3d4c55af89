"""The prompt set: what a file may hold, what counts for its digest, in which order it runs."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from draftmill.measurement.prompts import Prompt, Prompts, interleaved, load_prompts, quick
from draftmill.outcome import Refused
from tests.support.inputs import ROOT

OWN = ROOT / "config" / "prompts"
SEED = "Q: Explain in plain words why the sky appears blue during the day. A:"


def line(**members: Any) -> str:
    return json.dumps({"name": "one", "kind": "code", "text": "x = "} | members)


def write(folder: Path, *lines: str, name: str = "p.jsonl") -> Path:
    (folder / name).write_text("\n".join(lines))
    return folder / name


def refused(places: Path | list[Path]) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as error:
        load_prompts(places)
    return [(refusal.code, refusal.where.rpartition("/")[2]) for refusal in error.value.refusals]


def test_our_own_set_has_six_kinds_of_eight_or_more_and_the_seeds_question():
    prompts = load_prompts(OWN)
    counted = {kind: len(prompts.of(kind)) for kind in prompts.kinds}
    assert set(counted) == {"code", "maths", "explanation", "summary", "translation", "chat"}
    assert min(counted.values()) >= 8
    assert [prompt.kind for prompt in prompts.prompts if prompt.text == SEED] == ["explanation"]
    # What an engine is asked to continue is short: prompt and answer together fit a context of 512 tokens.
    assert max(len(prompt.text) for prompt in prompts.prompts) < 1000


def test_the_quick_set_is_the_seeds_question_else_the_first(tmp_path):
    assert [prompt.text for prompt in quick(load_prompts(OWN)).prompts] == [SEED]
    other = load_prompts(write(tmp_path, line(name="b"), line(name="a", text="y")))
    assert [prompt.name for prompt in quick(other).prompts] == ["b"]


def test_files_come_in_the_order_given_and_a_folders_by_name(tmp_path):
    late = write(tmp_path, line(name="z", text="1"), name="z.jsonl")
    early = write(tmp_path, line(name="a", text="2"), "", line(name="b", text="3"), name="a.jsonl")
    write(tmp_path, "not a prompt", name="notes.txt")
    assert [p.name for p in load_prompts(tmp_path).prompts] == ["a", "b", "z"]
    assert [p.name for p in load_prompts([late, early]).prompts] == ["z", "a", "b"]


def test_kinds_are_free_words_in_lower_case(tmp_path):
    path = write(tmp_path, line(kind=" Tool  Calls "), line(name="two", text="y", kind="tool calls"))
    assert load_prompts(path).kinds == ("tool-calls",)


def test_the_digest_is_of_names_kinds_texts_and_order():
    a, b = Prompt("a", "code", "é"), Prompt("b", "chat", "t")
    written_out = '[["a","code","é"],["b","chat","t"]]'
    assert Prompts((a, b)).digest == hashlib.sha256(written_out.encode()).hexdigest()
    others = [
        (b, a),
        (a,),
        (a, Prompt("b", "chat", "t ")),
        (a, Prompt("b", "code", "t")),
        (a, Prompt("c", "chat", "t")),
    ]
    assert len({Prompts((a, b)).digest, *(Prompts(other).digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("aabb", "a0 b2 a1 b3"),
        ("aaabb", "a0 b3 a1 b4 a2"),
        ("abcabc", "a0 b1 c2 a3 b4 c5"),
        ("aaaaaab", "a0 a1 a2 b6 a3 a4 a5"),
        ("a", "a0"),
        ("", ""),
    ],
)
def test_kinds_take_turns(kinds, expected):
    prompts = Prompts(tuple(Prompt(str(number), kind, str(number)) for number, kind in enumerate(kinds)))
    assert " ".join(p.kind + p.name for p in interleaved(prompts).prompts) == expected


BAD = {
    "not_json": ('{"name": ', "prompts.line"),
    "not_an_object": ("[1]", "prompts.line"),
    "a key twice": ('{"name":"a","name":"b","kind":"k","text":"t"}', "prompts.line"),
    "half a character": ('{"name":"a","kind":"k","text":"\\ud800"}', "prompts.line"),
    "a member missing": ('{"name":"a","kind":"k"}', "prompts.member"),
    "a member too many": (line(tags=[]), "prompts.member"),
    "a number": (line(text=1), "prompts.member"),
    "no name": (line(name=""), "prompts.name"),
    "a name of two words": (line(name="a b"), "prompts.name"),
    "a name that is a path": (line(name="../a"), "prompts.name"),
    "no kind": (line(kind="  "), "prompts.kind"),
    "a kind that is a path": (line(kind="a/b"), "prompts.kind"),
    "no text": (line(text=" \n"), "prompts.text"),
    "a text without end": (line(text="x" * 65537), "prompts.text"),
}


@pytest.mark.parametrize(("bad", "code"), BAD.values(), ids=BAD)
def test_a_wrong_line_is_refused_where_it_stands(bad, code, tmp_path):
    assert refused(write(tmp_path, line(name="fine", text="fine"), "", bad)) == [(code, "p.jsonl:3")]


def test_every_wrong_line_is_told_at_once(tmp_path):
    write(tmp_path, line(), "{", line(name="", kind=""), name="a.jsonl")
    write(tmp_path, line(text="other"), line(name="two"), name="b.jsonl")
    assert refused(tmp_path) == [
        ("prompts.line", "a.jsonl:2"),
        ("prompts.name", "a.jsonl:3"),
        ("prompts.kind", "a.jsonl:3"),
        ("prompts.name_twice", "b.jsonl:1"),
        ("prompts.text_twice", "b.jsonl:2"),
    ]


def test_what_is_no_set_is_refused(tmp_path, monkeypatch):
    assert refused(tmp_path) == [("prompts.none", "")]
    assert refused([tmp_path / "x", tmp_path / "y"]) == [("prompts.missing", "x"), ("prompts.missing", "y")]
    assert refused(Path("/dev/zero")) == [("prompts.missing", "zero")]
    path = write(tmp_path, line())
    path.write_bytes(b"\xff\xfe{")
    assert refused(path) == [("prompts.line", "p.jsonl:1")]
    monkeypatch.setattr("draftmill.measurement.prompts.MOST_PROMPTS", 1)
    write(tmp_path, line(), line(name="two", text="y"))
    assert refused(path) == [("prompts.too_many", "p.jsonl")]
    monkeypatch.setattr("draftmill.measurement.prompts.MOST_BYTES", 10)
    assert refused(path) == [("prompts.too_large", "p.jsonl")]
