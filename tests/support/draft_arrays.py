"""A made-up draft whose tensors lie in memory, of any size: the forward's tests need no file."""

from typing import Any

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.forward import Draft
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.geometry import Second
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 97,
    "target_layer_ids": (1, 5, 9),
}


class Arrays:
    """The tensors of a draft, by the mill's names; what `draftmill.dflash.forward.products.Source` asks for."""

    def __init__(self, config: DraftConfig, tensors: dict[str, np.ndarray]) -> None:
        self.config = config
        self.tensors = tensors

    def decode(self, name: str) -> np.ndarray:
        return self.tensors[name]

    def decode_rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        return self.tensors[name][rows]

    def close(self) -> None: ...


def small_config(generation: int = 1, **changes: Any) -> DraftConfig:
    """8 query and 2 key-value heads of 8, three layers, three taps; all layers full unless told."""
    layers = changes.get("num_hidden_layers", SMALL["num_hidden_layers"])
    settings = SMALL | {"layer_types": ("full_attention",) * layers, "sliding_window": None} | changes
    if generation == 2:
        settings = {"second": Second(2, 8, 12, 7)} | settings
    return synthetic_config(generation, **settings)


def small_tensors(config: DraftConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights large enough that every part of a layer shows in the result, float64."""
    return {
        name: values.astype(np.float64) * _scale(name, values.ndim)
        for name, values in synthetic_tensors(config, seed).items()
    }


def _scale(name: str, dimensions: int) -> int:
    if dimensions == 1 or "base_kernel" in name:
        return 1
    return 50 if "codebook" in name else 10


def small_draft(generation: int = 1, *, seed: int = 0, dtype: type = np.float64, **changes: Any) -> Draft:
    config = small_config(generation, **changes)
    return Draft(Weights(Arrays(config, small_tensors(config, seed)), np.dtype(dtype)))


def inputs(config: DraftConfig, context: int, block: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features [context, taps * H] and block rows [block, H], float64 normal."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((context, config.taps * config.hidden_size)), rng.standard_normal(
        (block, config.hidden_size)
    )
