"""Licences by name, and which files and repository names are about them."""

import pytest

from draftmill.licences.terms import is_carried, mentions_llama, terms_of


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


@pytest.mark.parametrize("name", [None, "", "unknown", "other", "apache", "proprietary", "cc-by-nd-4.0", "llama1"])
def test_a_licence_that_is_missing_or_unknown_has_no_terms(name: str | None) -> None:
    assert terms_of(name) is None


@pytest.mark.parametrize(
    "path", ["LICENSE", "licence.md", "NOTICE.txt", "LICENSE-APACHE", "USE_POLICY.md", "x/COPYING"]
)
def test_licence_texts_are_known_by_name(path: str) -> None:
    assert is_carried(path)


@pytest.mark.parametrize("path", ["README.md", "noticed.txt", "licenses.json.gz.bin", "model.safetensors", "LICENSE/x"])
def test_other_files_are_not_licence_texts(path: str) -> None:
    assert not is_carried(path)


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
