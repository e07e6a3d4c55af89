"""Configs of published drafts, typed from the reference pages, each with what it has to mean."""

from typing import Any

SLIDING, FULL = "sliding_attention", "full_attention"

BOLT: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 8,
    "dflash_config": {
        "mask_token_id": 4,
        "target_layer_ids": [5, 11, 17, 23, 35],
        "use_swa": True,
        "swa_window_size": 1024,
        "causal": False,
    },
    "hidden_size": 2560,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 5120,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "vocab_size": 262144,
    "max_position_embeddings": 131072,
    "num_target_layers": 42,
    "layer_types": [SLIDING] * 5,
    "sliding_window": 1024,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
"""NVIDIA's Nemotron-3.5-Bolt draft, without `has_own_lm_head`, which only its NVFP4 file has."""

QWEN38: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "is_causal": False,
    "attention_bias": False,
    "dflash_config": {
        "block_size": 8,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "mask_token_id": 248070,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [5, 19, 33, 47, 61],
    },
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "layer_types": [SLIDING] * 5,
    "sliding_window": 2048,
    "use_sliding_window": True,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
    "vocab_size": 248320,
    "num_target_layers": 64,
}

MUSE: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "is_causal": False,
    "attention_bias": False,
    "dflash_config": {
        "block_size": 16,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "final_logit_softcapping": 20.0,
        "mask_token_id": 201818,
        "output_multiplier": 0.19611613513818404,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [1, 13, 25, 37, 49],
    },
    "hidden_size": 6656,
    "intermediate_size": 19968,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "layer_types": [SLIDING] * 5,
    "sliding_window": 2048,
    "use_sliding_window": True,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "vocab_size": 202048,
    "num_target_layers": 52,
}

QWEN3_8B: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "layer_types": [FULL] * 5,
    "sliding_window": None,
    "use_sliding_window": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "vocab_size": 151936,
    "num_target_layers": 36,
    "attention_bias": False,
}

QWEN36_27B: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "is_causal": False,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]},
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "layer_types": [SLIDING] * 4 + [FULL],
    "sliding_window": 2048,
    "use_sliding_window": True,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000000,
    "vocab_size": 248320,
    "num_target_layers": 64,
}
"""SpecForge's training recipe, here with causality stated."""

QWEN35_27B: dict[str, Any] = {key: value for key, value in QWEN36_27B.items() if key != "is_causal"} | {
    "num_hidden_layers": 6,
    "layer_types": [SLIDING] * 5 + [FULL],
    "sliding_window": 4096,
    "block_size": None,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [3, 15, 27, 39, 51, 61], "block_size": 16},
}
"""Its kinds of layers, window, mask and block are published, its taps are not: these are made up."""
