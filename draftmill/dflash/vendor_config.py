"""config.json of a package in the vendor's form: the keys of the published draft configs with `model_type` dflash.

Generation 1 follows NVIDIA's Bolt config (block and rotary base at the top, window and causality in dflash_config),
generation 2 z-lab's (everything of the draft in dflash_config, the base in rope_parameters). Sources: q4nx.md
sections 5.2, 6.1 and 7.1. Nothing is left to a default: causality, window and kinds of layers are always stated.
"""

from typing import Any

from draftmill.dflash.config import ARCHITECTURES, VENDOR_MODEL_TYPE, DraftConfig
from draftmill.dflash.config_keys import SIZES

FLM_VERSION = "1.0.12"
"""The first FastFlowLM version that runs DFlash drafts; a package names the version it was written for."""


def vendor_config(config: DraftConfig) -> dict[str, Any]:
    """The config's JSON value; `parse_config` of it gives `config` again, as a vendor's."""
    slides = config.sliding_window is not None
    draft: dict[str, Any] = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
        "input_embedding_scale": config.input_embedding_scale,
        "output_multiplier": config.output_multiplier,
        "final_logit_softcapping": config.final_logit_softcapping,
    }
    content: dict[str, Any] = {
        "architectures": [name for name, generation in ARCHITECTURES.items() if generation == config.generation],
        "model_type": VENDOR_MODEL_TYPE,
        "flm_version": FLM_VERSION,
        **{key.name: getattr(config, key.name) for key in SIZES},
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "num_target_layers": config.num_target_layers,
        "layer_types": list(config.layer_types),
        "sliding_window": config.sliding_window,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    if config.second is None:
        draft |= {"use_swa": slides, "swa_window_size": config.sliding_window, "causal": config.causal}
        scaled = {"rope_type": config.rope.type, **config.rope.scaling}
        content |= {
            "block_size": config.block_size,
            "rope_theta": config.rope.theta,
            "rope_scaling": None if config.rope.type == "default" else scaled,
        }
    else:
        draft |= {"block_size": config.block_size, **vars(config.second)}
        content |= {
            "is_causal": config.causal,
            "use_sliding_window": slides,
            "rope_parameters": {
                "rope_theta": config.rope.theta,
                "rope_type": config.rope.type,
                **config.rope.scaling,
            },
        }
    content["dflash_config"] = {name: value for name, value in draft.items() if value is not None}
    return {name: value for name, value in content.items() if value is not None or name == "rope_scaling"}
