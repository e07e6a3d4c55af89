import pytest

from draftmill.gguf.naming import gguf_name, name_parts, parse_gguf_name


@pytest.mark.parametrize(
    ("repo", "weights", "encoding", "name"),
    [
        ("amd/PARD-Qwen3-0.6B", 751_632_384, "F16", "PARD-Qwen3-0.6B-v1.0-F16.gguf"),
        ("amd/PARD-Qwen2.5-0.5B", 494_032_768, "Q4_K_M", "PARD-Qwen2.5-0.5B-v1.0-Q4_K_M.gguf"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008, "q8_0", "SmolLM2-135M-Instruct-v1.0-Q8_0.gguf"),
        ("org/Thing-1.1B-Chat-v0.3", 1_100_000_000, "BF16", "Thing-1.1B-Chat-v0.3-BF16.gguf"),
        ("a_folder", 751_632_384, "F16", "a-folder-752M-v1.0-F16.gguf"),
    ],
)
def test_a_name_has_base_size_version_and_encoding(repo, weights, encoding, name):
    assert gguf_name(repo, weights, encoding) == name


def test_the_targets_size_in_a_pard2_name_is_not_the_drafts():
    # The draft of the 14B target has 0.75 B weights; llama.cpp's rule then reads "14B" as a fine-tune's name.
    parts = name_parts("amd/PARD2-Qwen3-14B", 751_632_384)
    assert (parts.base, parts.size, parts.finetune) == ("PARD2-Qwen3", "752M", "14b")
    assert gguf_name("amd/PARD2-Qwen3-14B", 751_632_384, "F16") == "PARD2-Qwen3-752M-14b-v1.0-F16.gguf"


def test_the_parts_of_a_name_are_told_apart():
    assert parse_gguf_name("PARD-Qwen2.5-0.5B-v1.0-Q4_K_M.gguf") == {
        "base": "PARD-Qwen2.5",
        "size": "0.5B",
        "version": "v1.0",
        "encoding": "Q4_K_M",
    }
    assert parse_gguf_name("Grok-100B-v1.0-Q4_0-00003-of-00009.gguf") == {
        "base": "Grok",
        "size": "100B",
        "version": "v1.0",
        "encoding": "Q4_0",
        "shard": "00003-of-00009",
    }
    assert parse_gguf_name("Hermes-2-Pro-Llama-3-8B-v1.0-vocab.gguf")["type"] == "vocab"


@pytest.mark.parametrize("name", ["Qwen3-0.6B-Q4_K_M.gguf", "Qwen3-0.6B-v1.0-F16.bin", "-0.6B-v1.0.gguf", "a.gguf"])
def test_a_name_that_lacks_a_part_is_none(name):
    assert parse_gguf_name(name) is None


def test_what_a_file_name_cannot_hold_becomes_a_hyphen():
    assert gguf_name("x/Tiny_Thing (new)", 2_000_000, "F16") == "Tiny-Thing-new-2.0M-v1.0-F16.gguf"
