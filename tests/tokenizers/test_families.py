"""Which family a draft without a tokenizer declares."""

from typing import Any

import pytest

from draftmill.tokenizers.families import FAMILIES, declared

QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "eos_token_id": 151645}
QWEN2 = QWEN3 | {"model_type": "qwen2"}
LLAMA = {"model_type": "llama", "vocab_size": 128256, "eos_token_id": [128001, 128008, 128009]}

CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (QWEN3, [], ["Qwen3"]),
    (QWEN2, [], ["Qwen2.5"]),
    (QWEN2 | {"vocab_size": 152064}, [], ["Qwen2.5"]),
    (LLAMA, [], ["Llama-3.1 (also 3.2 and 3.3)"]),
    (LLAMA | {"eos_token_id": 128001}, [], ["Llama-3.1 (also 3.2 and 3.3)", "Llama-3"]),
    (LLAMA | {"eos_token_id": 128009, "rope_scaling": {"rope_type": "llama3"}}, [], ["Llama-3.1 (also 3.2 and 3.3)"]),
    (
        LLAMA | {"eos_token_id": 128009, "rope_parameters": {"rope_type": "llama3"}},
        [],
        ["Llama-3.1 (also 3.2 and 3.3)"],
    ),
    (
        LLAMA | {"eos_token_id": 128009, "rope_scaling": {"type": "linear"}},
        [],
        ["Llama-3.1 (also 3.2 and 3.3)", "Llama-3"],
    ),
    (QWEN3 | {"_name_or_path": "Qwen/Qwen3-0.6B"}, [], ["Qwen3"]),
    (
        QWEN3 | {"_name_or_path": "Qwen/Qwen3-0.6B"},
        ["deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"],
        ["DeepSeek-R1-0528-Qwen3"],
    ),
    (QWEN2, ["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"], ["DeepSeek-R1-Distill-Qwen"]),
    (QWEN2, ["Qwen/Qwen2.5-0.5B-Instruct"], ["Qwen2.5"]),
    (QWEN2, ["Qwen/Qwen2-0.5B"], ["Qwen2"]),
    (LLAMA | {"eos_token_id": 128001}, ["unsloth/Llama-3.2-1B-Instruct"], ["Llama-3.1 (also 3.2 and 3.3)"]),
    (LLAMA | {"eos_token_id": 128001}, ["meta-llama/Meta-Llama-3-8B"], ["Llama-3"]),
    (LLAMA, ["deepseek-ai/DeepSeek-R1-Distill-Llama-8B"], ["DeepSeek-R1-Distill-Llama"]),
    # A name that the size contradicts is not believed.
    (QWEN3 | {"vocab_size": 248320, "_name_or_path": "Qwen/Qwen3-0.6B"}, [], []),
    (QWEN3 | {"vocab_size": 248320}, ["Qwen/Qwen3.5-0.8B"], []),
    ({"model_type": "llama", "vocab_size": 49152, "eos_token_id": 2}, [], []),
    (QWEN3 | {"eos_token_id": 5}, [], []),
    (QWEN3 | {"model_type": ["qwen3"]}, [], []),
    (QWEN3 | {"_name_or_path": 7, "eos_token_id": {"a": 1}}, [], ["Qwen3"]),
]


@pytest.mark.parametrize(("config", "base_models", "names"), CASES)
def test_the_declared_families(config: dict[str, Any], base_models: list[str], names: list[str]) -> None:
    assert [family.name for family in declared(config, base_models).families] == names


def test_no_two_families_agree_on_what_they_are_known_by() -> None:
    for first in FAMILIES:
        for second in FAMILIES:
            shared = first.known.keys() & second.known.keys()
            apart = first.highest != second.highest or any(first.known[t] != second.known[t] for t in shared)
            assert first is second or not shared or apart
