"""What has to travel along, by its own licence and by those that are inherited; each thing that lacks is told."""

from pathlib import Path
from typing import Any

import pytest

from draftmill.licences.duties import Publication, duties, refusals
from draftmill.licences.lineage import Ancestor, Start, trace

SENTENCE = (
    "Llama 3.2 is licensed under the Llama 3.2\nCommunity License, Copyright (c) Meta Platforms, Inc. "
    "All Rights Reserved."
)
TITLE = "LLAMA 3.2 COMMUNITY LICENSE AGREEMENT"


def codes(**changes: Any) -> list[str]:
    values: dict[str, Any] = {
        "licence": "apache-2.0",
        "statement": None,
        "names": ["amd/PARD-Qwen3-0.6B"],
        "lineage": (),
        "source_files": ["model.safetensors"],
        "files": {},
        "models": ["PARD-Qwen3-0.6B.gguf"],
        "notices": [],
    }
    values |= changes
    judged = {name: values.pop(name) for name in ("licence", "statement", "names", "lineage")}
    return [refusal.code for refusal in refusals(Publication(**judged), **values)]


def made_from(*names: str) -> tuple[Ancestor, ...]:
    return trace(Start(name, "base", "its card") for name in names)


@pytest.fixture
def llama(tmp_path: Path) -> dict[str, Any]:
    """A publication that meets the Llama 3.2 licence."""
    (tmp_path / "LICENSE.txt").write_text(f"{TITLE}\nterms")
    (tmp_path / "NOTICE").write_text(SENTENCE)
    return {
        "licence": "llama3.2",
        "names": ["amd/PARD-Llama-3.2-1B"],
        "files": {"LICENSE.txt": tmp_path / "LICENSE.txt", "NOTICE": tmp_path / "NOTICE"},
        "models": ["Llama-PARD-3.2-1B-Q4_K_M.gguf"],
        "notices": ["Built with Llama"],
    }


@pytest.mark.parametrize("name", [None, "", "unknown", "cc-by-nd-4.0"])
def test_a_licence_that_is_missing_or_unknown_needs_a_statement(name: str | None) -> None:
    assert codes(licence=name) == ["store.licence_missing"]
    assert codes(licence=name, statement="we wrote it") == []
    assert codes(licence=name, statement="") == ["store.licence_missing"]


def test_a_plain_licence_asks_for_nothing_when_the_repository_has_no_texts() -> None:
    assert codes() == []
    assert codes(lineage=made_from("Qwen/Qwen3-0.6B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")) == []


def test_texts_in_the_repository_have_to_travel(tmp_path: Path) -> None:
    source = ["LICENSE", "NOTICE.txt", "README.md", "model.safetensors"]
    assert codes(source_files=source) == ["store.licence_file_missing"] * 2
    assert codes(source_files=source, statement="anyway") == ["store.licence_file_missing"] * 2
    carried = {name: tmp_path / name for name in source[:2]}
    assert codes(source_files=source, files=carried) == []


def test_llamas_terms_are_met(llama: dict[str, Any]) -> None:
    assert codes(**llama) == []


@pytest.mark.parametrize("inherited", [False, True])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"models": ["PARD-Llama-3.2-1B.gguf"]}, "store.name_rule"),
        ({"notices": ["Built with care"]}, "store.display_missing"),
        ({"files": ["NOTICE"]}, "store.agreement_missing"),
        ({"files": ["LICENSE.txt"]}, "store.notice_missing"),
    ],
)
def test_each_of_llamas_terms_is_asked_for_of_it_and_of_what_was_made_from_it(
    llama: dict[str, Any], change: dict[str, Any], code: str, inherited: bool
) -> None:
    if inherited:
        llama |= {"licence": "mit", "lineage": made_from("meta-llama/Llama-3.2-1B")}
        assert codes(**llama) == []
    if "files" in change:
        change = {"files": {name: llama["files"][name] for name in change["files"]}}
    assert codes(**{**llama, **change}) == [code]


def test_the_text_and_the_notice_of_another_llama_are_not_those(llama: dict[str, Any]) -> None:
    agreement, notice = llama["files"]["LICENSE.txt"], llama["files"]["NOTICE"]
    agreement.write_text("LLAMA 3.1 COMMUNITY LICENSE AGREEMENT")
    assert codes(**llama) == ["store.agreement_missing"]
    agreement.write_text(TITLE)
    notice.write_text("Llama 3.1 is licensed under the Llama 3.1 Community License")
    assert codes(**llama) == ["store.notice_missing"]


def test_a_text_that_was_read_and_is_another_one_is_told_apart_from_none(llama: dict[str, Any], tmp_path: Path) -> None:
    def said(**files: Path) -> str:
        judged = Publication("llama3.2", None, (), ())
        found = refusals(judged, source_files=[], files=files, models=[], notices=["Built with Llama"])
        assert [each.code for each in found][:1] == ["store.agreement_missing"]
        return found[0].sentence

    text = tmp_path / "LICENSE-llama3.2.txt"
    text.write_text("\n  LLAMA 3.1  COMMUNITY LICENSE AGREEMENT\nterms")
    assert said(LICENSE=text).endswith(
        'LICENSE was read, and it does not have the words "Llama 3.2 Community License Agreement": it begins '
        '"LLAMA 3.1 COMMUNITY LICENSE AGREEMENT".'
    )
    text.write_text("\n \n")
    assert said(LICENSE=text).endswith("LICENSE was read, and it is empty.")
    assert codes(licence="openmdw", files={"LICENSE": text}) == ["store.agreement_missing"]
    text.write_text("OpenMDW")
    assert codes(licence="openmdw", files={"LICENSE": text}) == []
    assert "was read" not in said()
    assert "was read" not in said(NOTICE=llama["files"]["NOTICE"])


def test_everything_that_lacks_is_told_at_once(llama: dict[str, Any]) -> None:
    """A draft of Llama 3.2, trained for Llama 3.1, whose card says MIT."""
    lineage = (*made_from("meta-llama/Llama-3.2-1B"), *trace([Start("meta-llama/Llama-3.1-8B", "target", "a row")]))
    bare = {"licence": "mit", "lineage": lineage, "files": {}, "notices": [], "models": ["PARD.gguf"]}
    one = ["store.agreement_missing", "store.notice_missing", "store.display_missing", "store.name_rule"]
    assert codes(**bare) == one * 2
    judged = Publication("mit", None, (), lineage)
    assert [(duty.terms.id, duty.because_of) for duty in duties(judged)] == [
        ("llama3.2", ("meta-llama/Llama-3.2-1B",)),
        ("llama3.1", ("meta-llama/Llama-3.1-8B",)),
    ]
    told = refusals(judged, source_files=[], files={}, models=[], notices=[])
    assert "inherited from meta-llama/Llama-3.1-8B" in told[-1].sentence
    assert "llama3.1=FILE" in told[3].sentence
    assert codes(**bare, statement="an agreement with Meta") == []


def test_a_statement_does_not_waive_a_licence_that_is_named(llama: dict[str, Any]) -> None:
    assert codes(**{**llama, "notices": [], "statement": "please"}) == ["store.display_missing"]


def test_llama_2_has_no_name_rule_and_llama_3_its_own(llama: dict[str, Any]) -> None:
    agreement, notice = llama["files"]["LICENSE.txt"], llama["files"]["NOTICE"]
    agreement.write_text("LLAMA 2 COMMUNITY LICENSE AGREEMENT")
    notice.write_text("Llama 2 is licensed under the LLAMA 2 Community License")
    assert codes(**{**llama, "licence": "llama2", "notices": [], "models": ["x.gguf"]}) == []
    agreement.write_text("META LLAMA 3 COMMUNITY LICENSE AGREEMENT")
    notice.write_text("Meta Llama 3 is licensed under the Meta Llama 3 Community License")
    three = {**llama, "licence": "llama3", "notices": ["Built with Meta Llama 3"]}
    assert codes(**{**three, "models": ["Llama-3-PARD.gguf"]}) == []
    assert codes(**{**three, "models": ["Llama-PARD.gguf"]}) == ["store.name_rule"]


@pytest.mark.parametrize("ancestor", ["lmsys/vicuna-7b-v1.3", "somebody/model-of-whom-nobody-knows"])
def test_an_ancestor_of_unknown_terms_needs_a_statement(ancestor: str) -> None:
    assert codes(licence="mit", lineage=made_from(ancestor)) == ["store.lineage_unknown"]
    assert codes(licence="mit", lineage=made_from(ancestor), statement="asked them") == []


def test_a_llama_by_name_alone_needs_its_lineage_or_a_statement() -> None:
    given: dict[str, Any] = {"licence": "mit", "names": ["amd/PARD-Llama-3.2-1B"]}
    assert codes(**given) == ["store.licence_lineage"]
    assert codes(**given, statement="an agreement with Meta") == []
    assert "store.licence_lineage" not in codes(**given, lineage=made_from("meta-llama/Llama-3.2-1B"))


def test_what_was_made_with_a_qwen_research_model_says_so(tmp_path: Path) -> None:
    lineage = made_from("Qwen/Qwen2.5-3B")
    assert codes(licence="mit", lineage=lineage) == [
        "store.agreement_missing",
        "store.notice_missing",
        "store.display_missing",
    ]
