"""config.json of a draft in the upstream form: the keys of z-lab's published checkpoints, each where those have it.

Generation 1 has its block and rotary base at the top, generation 2 in `dflash_config` and `rope_parameters`. The
converter of llama.cpp reads a mask id from `dflash_config` alone, and a window only beside `use_sliding_window`.
Sources: dflash.md sections 1.1 and 5.1; ggml-org/llama.cpp conversion/qwen.py, DFlashModel.
"""

from typing import Any

from draftmill.dflash.config import ARCHITECTURES, DraftConfig
from draftmill.dflash.config_keys import SIZES

MODEL_TYPE = "qwen3"
"""Of every published checkpoint: a draft's layers are Qwen3's, whatever its target is."""
_OPTIONAL = ("input_embedding_scale", "output_multiplier", "final_logit_softcapping")
_ORDINARY = (1.0, None)


def upstream_config(config: DraftConfig, dtype: str) -> dict[str, Any]:
    """dtype: transformers' name of what the weights are loaded as. `parse_config` of the value gives `config` again, as
    an upstream one's."""
    draft: dict[str, Any] = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
        **{key: value for key in _OPTIONAL if (value := getattr(config, key)) not in _ORDINARY or config.stated(key)},
    }
    content: dict[str, Any] = {
        "architectures": [name for name, generation in ARCHITECTURES.items() if generation == config.generation],
        "model_type": MODEL_TYPE,
        **{key.name: getattr(config, key.name) for key in SIZES},
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "attention_bias": False,
        "layer_types": list(config.layer_types),
        "sliding_window": config.sliding_window,
        "use_sliding_window": config.sliding_window is not None,
        "is_causal": config.causal,
        "tie_word_embeddings": False,
        "dtype": dtype,
    }
    for key in ("max_position_embeddings", "num_target_layers"):
        if getattr(config, key) is not None:
            content[key] = getattr(config, key)
    rope = {"rope_type": config.rope.type, **config.rope.scaling}
    if config.second is None:
        content |= {
            "block_size": config.block_size,
            "rope_theta": config.rope.theta,
            "rope_scaling": None if config.rope.type == "default" else rope,
        }
    else:
        draft |= {"block_size": config.block_size, **vars(config.second)}
        content["rope_parameters"] = {"rope_theta": config.rope.theta, **rope}
    return content | {"dflash_config": draft}
