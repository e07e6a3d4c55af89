"""The vendor's naming: a PARD name carries the draft's size, a PARD2 name the target's."""

import pytest

from draftmill.pard.config import Pard
from draftmill.pard.names import describe, read_name

# Every repository that the vendor names, with what its name means.
NAMES = [
    ("amd/PARD-Llama-3.2-1B", ("PARD", "Llama-3.2", "1B", "draft")),
    ("amd/PARD-Llama-4-1B", ("PARD", "Llama-4", "1B", "draft")),
    ("amd/PARD-DeepSeek-R1-Distill-Qwen-1.5B", ("PARD", "DeepSeek-R1-Distill-Qwen", "1.5B", "draft")),
    ("amd/PARD-Qwen2.5-0.5B", ("PARD", "Qwen2.5", "0.5B", "draft")),
    ("amd/PARD-Qwen3-0.6B", ("PARD", "Qwen3", "0.6B", "draft")),
    ("amd/PARD2-Llama-3.1-8B", ("PARD-2", "Llama-3.1", "8B", "target")),
    ("amd/PARD2-Qwen3-8B", ("PARD-2", "Qwen3", "8B", "target")),
    ("amd/PARD2-Qwen3-14B", ("PARD-2", "Qwen3", "14B", "target")),
]


@pytest.mark.parametrize(("repository", "expected"), NAMES)
def test_the_vendor_s_names_are_read(repository: str, expected: tuple[str, ...]) -> None:
    name = read_name(repository)
    assert name is not None
    assert (name.generation, name.model, name.size, name.size_of) == expected
    assert name.target == (f"{expected[1]}-{expected[2]}" if expected[3] == "target" else None)


@pytest.mark.parametrize("repository", ["Qwen/Qwen3-0.6B", "amd/PARD", "amd/PARD-Qwen3", "amd/LEOPARD-Qwen3-8B", ""])
def test_other_names_say_nothing(repository: str) -> None:
    assert read_name(repository) is None


PARD = Pard("PARD", 151670, 1024)
PARD2 = Pard("PARD-2", 151670, 1024, (-1,), 4096)


def test_the_size_in_a_pard_name_is_the_draft_s() -> None:
    described = describe("amd/PARD-Qwen3-0.6B", PARD)
    assert (described.draft_size, described.target, described.remarks) == ("0.6B", None, ())


def test_the_size_in_a_pard2_name_is_the_target_s_and_the_base_model_gives_the_draft_s() -> None:
    described = describe("amd/PARD2-Qwen3-8B", PARD2, ["Qwen/Qwen3-0.6B"])
    assert (described.draft_size, described.target, described.remarks) == ("0.6B", "Qwen3-8B", ())


def test_a_base_model_beats_the_size_in_the_name() -> None:
    described = describe("amd/PARD-Qwen3-8B", PARD, ["Qwen/Qwen3-0.6B"])
    assert (described.draft_size, described.target) == ("0.6B", None)
    assert "the base model counts" in described.remarks[0]


def test_a_config_beats_the_generation_in_the_name() -> None:
    described = describe("amd/PARD-Qwen3-8B", PARD2)
    assert (described.generation, described.draft_size, described.target) == ("PARD-2", None, None)
    assert "config.json counts" in described.remarks[0]


def test_an_unknown_name_leaves_the_metadata() -> None:
    described = describe("me/my-draft", PARD2, ["unsloth/Llama-3.2-1B-Instruct"])
    assert (described.generation, described.draft_size, described.target) == ("PARD-2", "1B", None)
