"""Small made-up drafts of both generations whose weights are distributed like real ones.

Weights are normal with a spread of 0.02 (which gives the minimum/scale ratio of about -7.4 that real drafts show),
gains lie around 1, and columns of fc differ in magnitude as the seed page measures it on the Bolt draft.
"""

from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np

from draftmill.dflash.config import DraftConfig, Second
from draftmill.dflash.config_kinds import SLIDING
from draftmill.dflash.inventory import Role, expected_tensors
from draftmill.dflash.rope import Rope

SPREAD = 0.02
COLUMN_SPREAD = 0.3
"""Of the logarithm of a column's magnitude in fc: neighbours in a column then correlate by about 0.13 (Bolt: 0.107)."""

_FIRST = DraftConfig(
    generation=1,
    vendor=True,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    vocab_size=512,
    rms_norm_eps=1e-6,
    rope=Rope(1e6),
    layer_types=(SLIDING,) * 2,
    sliding_window=64,
    causal=False,
    block_size=8,
    mask_token_id=4,
    target_layer_ids=(1, 5, 9),
    num_target_layers=12,
    max_position_embeddings=4096,
)


def synthetic_config(generation: Literal[1, 2] = 1, **changes: Any) -> DraftConfig:
    """A draft of 256 x 512 with two sliding layers, three taps of twelve layers; any field can be changed."""
    config = _FIRST if generation == 1 else replace(_FIRST, generation=2, second=Second(2, 16, 256, 16))
    layers = changes.get("num_hidden_layers", config.num_hidden_layers)
    return replace(config, **({"layer_types": (SLIDING,) * layers} | changes))


def synthetic_tensors(config: DraftConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Every tensor of the draft, float32: the mill's name -> values of the logical shape."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for each in expected_tensors(config, scalars=False):
        noise = rng.standard_normal(prod(each.shape), np.float32).reshape(each.shape)
        match each.role:
            case Role.NORM:
                values = 1 + np.float32(0.2) * noise
            case Role.CONV_KERNEL:
                values = np.float32(SPREAD) * noise
                values[:, 0] += 1
            case Role.FUSION:
                columns = rng.standard_normal(each.shape[1], np.float32)
                values = np.float32(SPREAD) * noise * np.exp(np.float32(COLUMN_SPREAD) * columns)
            case _:
                values = np.float32(SPREAD) * noise
        tensors[each.name] = values
    return tensors
