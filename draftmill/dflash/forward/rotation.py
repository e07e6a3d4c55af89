"""Rotary positions of a draft: NeoX rotate-half over the whole head, angles computed in float64.

Inverse frequencies are theta^(-2j/d) (dflash.md 3.3). YaRN as arXiv 2309.00071 section 3.4 and transformers'
`_compute_yarn_parameters` have it: a ramp between interpolated and original frequencies, a factor on cosine and sine.
"""

import math

import numpy as np

from draftmill.dflash.rope import Rope


class Rotation:
    """Cosines and sines of absolute positions for one head dimension d (even)."""

    def __init__(self, rope: Rope, head_dim: int, dtype: np.dtype) -> None:
        self._dtype = dtype
        self.frequencies, self.factor = inverse_frequencies(rope, head_dim)

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int positions [n] -> cosines and sines [n, d], the halves alike."""
        angles = np.outer(positions.astype(np.float64), self.frequencies)
        both = np.concatenate([angles, angles], axis=1)
        return (np.cos(both) * self.factor).astype(self._dtype), (np.sin(both) * self.factor).astype(self._dtype)


def rotate(rows: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> np.ndarray:
    """rows [n, heads, d] turned by cosines and sines [n, d]."""
    half = rows.shape[-1] // 2
    turned = np.concatenate([-rows[..., half:], rows[..., :half]], axis=-1)
    return rows * cosines[:, None] + turned * sines[:, None]


def inverse_frequencies(rope: Rope, head_dim: int) -> tuple[np.ndarray, float]:
    """float64 [d / 2], and the factor on cosine and sine (1 without scaling)."""
    plain = rope.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if rope.type == "default":
        return plain, 1.0
    scaling = rope.scaling
    factor, trained = scaling["factor"], scaling["original_max_position_embeddings"]

    def dimension(rotations: float) -> float:
        return head_dim * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(scaling.get("beta_fast", 32)), dimension(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # as transformers does: a ramp of no width would divide by zero
    ramp = np.clip((np.arange(head_dim // 2, dtype=np.float64) - low) / (high - low), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp), _attention_factor(rope)


def _attention_factor(rope: Rope) -> float:
    scaling = rope.scaling
    if stated := scaling.get("attention_factor"):
        return stated

    def of(scale: float) -> float:
        return 1.0 if scaling["factor"] <= 1 else 0.1 * scale * math.log(scaling["factor"]) + 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return of(scaling["mscale"]) / of(scaling["mscale_all_dim"])
    return of(1)
