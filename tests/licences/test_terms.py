from pathlib import Path
from typing import Any

import pytest

from draftmill.licences.terms import is_carried, mentions_llama, refusals, terms_of

NOTICE = (
    "Llama 3.2 is licensed under the Llama 3.2\nCommunity License, Copyright (c) Meta Platforms, Inc. "
    "All Rights Reserved."
)


def codes(**changes: Any) -> list[str]:
    values: dict[str, Any] = {
        "licence": "apache-2.0",
        "statement": None,
        "lineage": ["amd/PARD-Qwen3-0.6B"],
        "source_files": ["model.safetensors"],
        "files": {},
        "models": ["PARD-Qwen3-0.6B.gguf"],
        "notices": [],
    }
    return [refusal.code for refusal in refusals(**{**values, **changes})]


@pytest.fixture
def llama(tmp_path: Path) -> dict[str, Any]:
    """A publication that meets the Llama 3.2 licence."""
    (tmp_path / "LICENSE.txt").write_text("the agreement")
    (tmp_path / "NOTICE").write_text(NOTICE)
    return {
        "licence": "llama3.2",
        "lineage": ["amd/PARD-Llama-3.2-1B"],
        "files": {"LICENSE.txt": tmp_path / "LICENSE.txt", "NOTICE": tmp_path / "NOTICE"},
        "models": ["Llama-PARD-3.2-1B-Q4_K_M.gguf"],
        "notices": ["Built with Llama"],
    }


@pytest.mark.parametrize(
    ("name", "id", "spdx"),
    [
        ("apache-2.0", "Apache-2.0", True),
        ("Apache-2.0", "Apache-2.0", True),
        ("mit", "MIT", True),
        ("cc-by-nc-4.0", "CC-BY-NC-4.0", True),
        ("llama3.1", "llama3.1", False),
        ("gemma", "gemma", False),
    ],
)
def test_names_of_the_hub_and_of_spdx_are_one_licence(name: str, id: str, spdx: bool) -> None:
    terms = terms_of(name)
    assert terms is not None
    assert (terms.id, terms.spdx) == (id, spdx)


@pytest.mark.parametrize("name", [None, "", "unknown", "other", "apache", "proprietary", "cc-by-nd-4.0"])
def test_a_licence_that_is_missing_or_unknown_needs_a_statement(name: str | None) -> None:
    assert terms_of(name) is None
    assert codes(licence=name) == ["store.licence_missing"]
    assert codes(licence=name, statement="we wrote it") == []
    assert codes(licence=name, statement="") == ["store.licence_missing"]


def test_a_plain_licence_asks_for_nothing_when_the_repository_has_no_texts() -> None:
    assert codes() == []


def test_texts_in_the_repository_have_to_travel(tmp_path: Path) -> None:
    source = ["LICENSE", "NOTICE.txt", "README.md", "model.safetensors"]
    assert codes(source_files=source) == ["store.licence_file_missing"] * 2
    assert codes(source_files=source, statement="anyway") == ["store.licence_file_missing"] * 2
    carried = {name: tmp_path / name for name in source[:2]}
    assert codes(source_files=source, files=carried) == []


@pytest.mark.parametrize(
    "path", ["LICENSE", "licence.md", "NOTICE.txt", "LICENSE-APACHE", "USE_POLICY.md", "x/COPYING"]
)
def test_licence_texts_are_known_by_name(path: str) -> None:
    assert is_carried(path)


@pytest.mark.parametrize("path", ["README.md", "noticed.txt", "licenses.json.gz.bin", "model.safetensors", "LICENSE/x"])
def test_other_files_are_not_licence_texts(path: str) -> None:
    assert not is_carried(path)


def test_llamas_terms_are_met(llama: dict[str, Any]) -> None:
    assert codes(**llama) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"models": ["PARD-Llama-3.2-1B.gguf"]}, "store.name_rule"),
        ({"notices": ["Built with care"]}, "store.display_missing"),
    ],
)
def test_llamas_display_and_name_are_asked_for(llama: dict[str, Any], change: dict[str, Any], code: str) -> None:
    assert codes(**{**llama, **change}) == [code]


def test_llamas_agreement_and_notice_are_asked_for(llama: dict[str, Any]) -> None:
    agreement, notice = llama["files"]["LICENSE.txt"], llama["files"]["NOTICE"]
    assert codes(**{**llama, "files": {"NOTICE": notice}}) == ["store.agreement_missing"]
    assert codes(**{**llama, "files": {"LICENSE.txt": agreement}}) == ["store.notice_missing"]
    notice.write_text("Llama 3.1 is licensed under the Llama 3.1 Community License")
    assert codes(**llama) == ["store.notice_missing"]


def test_a_statement_does_not_waive_a_licence_that_is_named(llama: dict[str, Any]) -> None:
    assert codes(**{**llama, "notices": [], "statement": "please"}) == ["store.display_missing"]


def test_llama_2_has_no_name_rule_and_llama_3_its_own(llama: dict[str, Any]) -> None:
    notice = llama["files"]["NOTICE"]
    notice.write_text("Llama 2 is licensed under the LLAMA 2 Community License")
    assert codes(**{**llama, "licence": "llama2", "notices": [], "models": ["x.gguf"]}) == []
    notice.write_text("Meta Llama 3 is licensed under the Meta Llama 3 Community License")
    three = {**llama, "licence": "llama3", "notices": ["Built with Meta Llama 3"]}
    assert codes(**{**three, "models": ["Llama-3-PARD.gguf"]}) == []
    assert codes(**{**three, "models": ["Llama-PARD.gguf"]}) == ["store.name_rule"]


def test_a_llama_parent_is_recognized_by_its_name() -> None:
    kin = [
        "meta-llama/X",
        "amd/PARD-Llama-3.2-1B",
        "a/Meta-Llama-3-8B",
        "b/Llama3.1-x",
        "lmsys/vicuna-7b",
        "c/CodeLlama-7b",
    ]
    others = ["TinyLlama/TinyLlama-1.1B", "HuggingFaceTB/SmolLM2-135M", "amd/PARD-Qwen3-0.6B", "a/llamafied-x"]
    assert mentions_llama(kin + others) == kin


def test_a_llama_parent_under_another_licence_needs_a_statement() -> None:
    lineage = ["amd/PARD-Llama-3.2-1B"]
    assert codes(licence="mit", lineage=lineage) == ["store.licence_lineage"]
    assert codes(licence="mit", lineage=lineage, statement="an agreement with Meta") == []
