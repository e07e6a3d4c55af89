"""Families by rule, on the shipped catalogue: what a repository shows beats what it is called."""

from typing import Any

import pytest

from draftmill.catalogue.catalogue import load_catalogue
from draftmill.catalogue.classify import classify
from draftmill.catalogue.evidence import Evidence
from draftmill.configuration import config_path
from draftmill.outcome import Refused
from draftmill.pard.config import detect
from draftmill.pard.names import read_name

FAMILIES = load_catalogue(config_path("catalogue.yaml")).families
PARD = {"spd_type": "pard", "pard_token": 151670, "vocab_size": 151936, "hidden_size": 1024}
PARD2 = {**PARD, "spd_type": "pard2", "pard2": True, "pard2_target_layers": [-1, -8], "pard2_target_dim": 2048}
WEIGHTS = ("config.json", "model.safetensors")
PACKAGE = ("config.json", "model.q4nx")


def shown(repo: str, config: dict[str, Any] | None, files: tuple[str, ...] = WEIGHTS, *tensors: str) -> Evidence:
    return Evidence(repo, files, config, lambda: frozenset(tensors))


@pytest.mark.parametrize(
    ("evidence", "family", "by"),
    [
        (shown("amd/PARD-Qwen3-0.6B", PARD), "PARD", "config.json"),
        (shown("acme/some-draft", PARD), "PARD", "config.json"),
        (shown("amd/PARD2-Qwen3-8B", PARD2), "PARD-2", "config.json"),
        (shown("amd/PARD2-Qwen3-8B", {**PARD, "pard2": True}), "PARD-2", "config.json"),
        (shown("x/y", {"architectures": ["DFlashDraftModel"]}, PACKAGE), "DFlash", "config.json"),
        (shown("x/y", {"architectures": ["DFlash2DraftModel"]}, PACKAGE), "DFlash 2", "config.json"),
        (shown("x/y", {"architectures": ["DFlash2DraftModel"]}), "DFlash checkpoint", "config.json"),
        (shown("amd/Gumiho-llama3-8b", None, ("pytorch_model.bin",)), "Gumiho", "the name, with the files,"),
        (
            shown("acme/renamed", {"model_type": "gumiho"}, ("pytorch_model.bin", "config.json")),
            "Gumiho",
            "config.json",
        ),
        (shown("x/y", {"model_type": "dflash"}, PACKAGE, "dflash.fc.weight"), "DFlash", "the weights' header"),
        (
            shown("x/y", {"model_type": "dflash"}, PACKAGE, "candidate_selector.predecessor_codebook"),
            "DFlash 2",
            "the weights' header",
        ),
        (
            shown("nvidia/NVIDIA-Nemotron-3.5-Bolt-E4B-4GB-DFlash", None, ("draft.gguf",)),
            "DFlash GGUF",
            "the name, with the files,",
        ),
    ],
)
def test_a_repository_is_of_the_family_that_it_shows(evidence: Evidence, family: str, by: str) -> None:
    found = classify(evidence, FAMILIES)
    assert (found.family, found.by, found.remarks) == (family, by, ())


def test_metadata_beats_the_name_and_the_catalogue_and_says_so() -> None:
    found = classify(shown("amd/PARD2-Qwen3-8B", PARD), FAMILIES, expected="PARD-2")
    assert found.family == "PARD"
    assert found.remarks == (
        "the name says PARD-2, config.json says PARD: config.json counts",
        "the catalogue says PARD-2, config.json says PARD: config.json counts",
    )
    found = classify(shown("amd/Gumiho-llama3-8b", PARD), FAMILIES)
    assert (found.family, len(found.remarks)) == ("PARD", 1)


@pytest.mark.parametrize(
    "evidence",
    [
        shown("amd/PARD-Qwen3-0.6B", {"model_type": "qwen3"}),
        shown("amd/PARD-Qwen3-0.6B", {**PARD, "pard_token": "151670"}),
        shown("amd/PARD-Qwen3-0.6B", {**PARD, "pard_token": True}),
        shown("acme/heads", None, ("pytorch_model.bin",)),
        shown("amd/Gumiho-llama3-8b", {"model_type": "llama"}, ("config.json", "pytorch_model.bin")),
        shown("amd/Gumiho-llama3-8b", None, ("README.md",)),
        shown("FastFlowLM/X-DFlash-NPU2", {"model_type": "qwen3"}, PACKAGE),
    ],
)
def test_a_name_alone_decides_nothing(evidence: Evidence) -> None:
    with pytest.raises(Refused) as caught:
        classify(evidence, FAMILIES)
    assert caught.value.code == "catalogue.family_unknown"


def test_two_families_at_once_are_refused() -> None:
    both = {**PARD, "architectures": ["DFlashDraftModel"]}
    with pytest.raises(Refused) as caught:
        classify(shown("x/y", both), FAMILIES)
    assert caught.value.code == "catalogue.family_ambiguous"
    assert caught.value.refusals[0].measured == ["DFlash checkpoint", "PARD"]


def test_headers_are_read_only_where_a_rule_needs_them() -> None:
    def read() -> frozenset[str]:
        raise AssertionError("read the header")

    evidence = Evidence("x/y", PACKAGE, {"architectures": ["DFlashDraftModel"], "model_type": "dflash"}, read)
    assert classify(evidence, FAMILIES).family == "DFlash"


@pytest.mark.parametrize("config", [PARD, PARD2, {**PARD, "pard2": True, "pard2_target_layers": [-1]}])
def test_the_rules_agree_with_the_reader_of_the_config(config: dict[str, Any]) -> None:
    pard = detect(config)
    assert pard is not None
    assert classify(shown("x/y", config), FAMILIES).family == pard.generation


def test_a_pard_name_has_the_drafts_size_and_a_pard_2_name_the_targets() -> None:
    first, second = read_name("amd/PARD-Qwen3-0.6B"), read_name("amd/PARD2-Qwen3-14B")
    assert first and (first.size, first.size_of, first.target) == ("0.6B", "draft", None)
    assert second and (second.size, second.size_of, second.target) == ("14B", "target", "Qwen3-14B")
