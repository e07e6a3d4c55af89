"""config.json of the upstream form: every key where published checkpoints have it, and nothing lost on the way."""

from dataclasses import replace
from typing import Any

import pytest

from draftmill.dflash.config import parse_config
from draftmill.dflash.conversion.upstream_config import upstream_config
from tests.dflash.published import BOLT, MUSE, QWEN3_8B, QWEN36_27B, QWEN38, SLIDING

YARN: dict[str, Any] = QWEN3_8B | {
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
}


@pytest.mark.parametrize("content", [BOLT, QWEN38, MUSE, QWEN3_8B, QWEN36_27B, YARN])
def test_what_is_written_says_what_was_read(content: dict[str, Any]) -> None:
    config = parse_config(content)
    again = parse_config(upstream_config(config, "bfloat16"))
    assert again == replace(config, vendor=False)
    # Nothing that decides a draft is left to a default or a guess.
    assert all(again.stated(key) for key in ("causal", "block_size", "mask_token_id", "target_layer_ids", "rope_theta"))


def test_generation_1_has_its_block_at_the_top_and_its_mask_and_taps_inside() -> None:
    content = upstream_config(parse_config(BOLT), "float32")
    assert content["dflash_config"] == {"mask_token_id": 4, "target_layer_ids": [5, 11, 17, 23, 35]}
    assert (content["block_size"], content["rope_theta"], content["rope_scaling"]) == (8, 1e6, None)
    # llama.cpp's converter takes a window only beside use_sliding_window, and causality from the top.
    assert (content["sliding_window"], content["use_sliding_window"], content["is_causal"]) == (1024, True, False)
    assert (content["architectures"], content["model_type"], content["dtype"]) == (
        ["DFlashDraftModel"],
        "qwen3",
        "float32",
    )
    assert content["layer_types"] == [SLIDING] * 5


def test_generation_2_has_all_of_the_draft_inside() -> None:
    content = upstream_config(parse_config(MUSE), "bfloat16")
    assert content["dflash_config"] == MUSE["dflash_config"]
    assert content["rope_parameters"] == {"rope_theta": 5e5, "rope_type": "default"}
    assert "block_size" not in content and "rope_theta" not in content


def test_a_draft_without_a_window_says_so() -> None:
    content = upstream_config(parse_config(QWEN3_8B), "bfloat16")
    assert (content["sliding_window"], content["use_sliding_window"]) == (None, False)
