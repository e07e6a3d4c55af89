"""The metadata keys of a GGUF draft: the config.json key that each carries, and what llama.cpp takes where it is not.

Sources: llama.cpp's conversion/base.py and conversion/qwen.py (what is written), src/llama-model.cpp,
src/models/dflash.cpp and common/speculative.cpp at 0c1e57098 (what is taken).
"""

from dataclasses import dataclass
from typing import Literal

ARCHITECTURE = "dflash"
MASK_TOKEN_ID = "tokenizer.ggml.mask_token_id"  # noqa: S105 - a key
TOKENS = "tokenizer.ggml.tokens"
NUM_TARGET_LAYERS = "draftmill.dflash.num_target_layers"
"""The target's depth has no key in the standard; without it a shift of the tapped layers cannot be seen."""


def key(name: str) -> str:
    """The whole of a key in the architecture's own group."""
    return f"{ARCHITECTURE}.{name}"


@dataclass(frozen=True)
class GgufKey:
    """config: dotted place in config.json. key: in the file. form: of the value. assumed: by llama.cpp when absent."""

    config: str
    key: str
    form: Literal["whole", "real"]
    assumed: str


def _whole(config: str, name: str, assumed: str) -> GgufKey:
    return GgufKey(config, key(name), "whole", assumed)


def _real(config: str, name: str, assumed: str = "") -> GgufKey:
    return GgufKey(config, key(name), "real", assumed)


_FAILS = "llama.cpp does not load the file"

REQUIRED = (
    _whole("num_hidden_layers", "block_count", _FAILS),
    _whole("max_position_embeddings", "context_length", _FAILS),
    _whole("hidden_size", "embedding_length", _FAILS),
    _whole("intermediate_size", "feed_forward_length", "llama.cpp takes 0"),
    _whole("num_attention_heads", "attention.head_count", "llama.cpp takes 0"),
    _whole("num_key_value_heads", "attention.head_count_kv", "llama.cpp takes as many as query heads"),
    _whole("head_dim", "attention.key_length", "llama.cpp takes embedding_length / head_count"),
    _real("rms_norm_eps", "attention.layer_norm_rms_epsilon", _FAILS),
    _real("rope_parameters.rope_theta", "rope.freq_base", "llama.cpp takes 10000"),
    _whole("block_size", "block_size", "llama.cpp takes 16"),
    GgufKey("mask_token_id", MASK_TOKEN_ID, "whole", "llama.cpp drafts with the id -1, which is no token"),
)
"""What every draft states, in the order in which findings about it are listed."""

SECOND = (
    _whole("conv_kernel_size", "conv_kernel_size", _FAILS),
    _whole("conv_group_size", "conv_group_size", _FAILS),
    _whole("selector_rank", "selector_rank", _FAILS),
    _whole("selector_top_k", "selector_top_k", _FAILS),
)
"""What every draft of generation 2 states besides."""

OPTIONAL = (
    _real("output_multiplier", "logit_scale"),
    _real("final_logit_softcapping", "final_logit_softcapping"),
    _real("input_embedding_scale", "embedding_scale"),
    GgufKey("num_target_layers", NUM_TARGET_LAYERS, "whole", ""),
)
"""What is neutral when absent, to llama.cpp as to upstream."""

TARGET_LAYERS = key("target_layers")
CAUSAL = key("attention.causal")
SLIDING_WINDOW = key("attention.sliding_window")
SLIDING_PATTERN = key("attention.sliding_window_pattern")
ROPE_TYPE = key("rope.scaling.type")
ROPE_SECTIONS = key("rope.dimension_sections")
ROPE_SCALING = (
    _real("rope_parameters.factor", "rope.scaling.factor"),
    _whole("rope_parameters.original_max_position_embeddings", "rope.scaling.original_context_length", ""),
    _real("rope_parameters.attention_factor", "rope.scaling.yarn_attn_factor"),
    _real("rope_parameters.beta_fast", "rope.scaling.yarn_beta_fast"),
    _real("rope_parameters.beta_slow", "rope.scaling.yarn_beta_slow"),
)
"""Of YaRN, in the converter's order."""
UNHEEDED = tuple(each.key for each in ROPE_SCALING[2:])
"""Keys that the converter writes and llama.cpp's `dflash` does not read: it takes 1, 32 and 1 whatever they say."""
