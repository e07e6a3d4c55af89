"""How far a tensor may be from its source: the error of uniform quantization with the steps its own values call for.

A type rounds groups of values to `levels` equal steps between bounds taken from the group. Rounding to the nearest step
errs by step / sqrt(12) in the root mean square when values spread over a step, and by at most step / 2; so measured
over predicted error is about 1 and never above sqrt(3). That the prediction comes from the tensor's own groups makes it
hold for heavy tails too, where a fixed figure a type would be either too loose or wrong.

| type       | group | step                          | cosine and relative RMS, normal weights |
|------------|-------|-------------------------------|-----------------------------------------|
| F32        | -     | 0                             | 1, 0                                    |
| F16        | -     | 2^-10 of the value            | 1 - 4e-8, at most 2.8e-4                |
| BF16       | -     | 2^-7 of the value             | 1 - 3e-6, at most 2.3e-3                |
| Q8_0       | 32    | max |x| / 127                 | 0.99999, 0.0054                         |
| Q6_K       | 16    | max |x| / 32                  | 0.9998, 0.019                           |
| Q5_K, Q5_1 | 32    | (max - min) / 31              | 0.9992, 0.039                           |
| Q5_0       | 32    | max |x| / 16                  | 0.9991, 0.043                           |
| Q4_K, Q4_1 | 32    | (max - min) / 15              | 0.9967, 0.081                           |
| Q4_0       | 32    | max |x| / 8                   | 0.9963, 0.086                           |
| Q3_K       | 16    | max |x| / 4                   | 0.988, 0.154                            |
| Q2_K       | 16    | (max - min) / 3               | 0.944, 0.35                             |

Measured ratios, real SmolLM2-135M weights and normal ones, ggml's quantizer of b11549: whole tensors 0.85 to 1.00 for
values on no grid, up to 1.22 for weights that lay on a coarser grid before; single blocks up to 1.71. Limits:
`TENSOR_LIMIT` for a whole tensor, `BLOCK_LIMIT` for each block of the file (sqrt(3), and room for the clipped end of
types whose bounds are not symmetric and for scales kept in few bits). A scale that is off by 1/8 (types of four bits
and more), or one block that is lost, breaks them. So do weights of one magnitude and both signs where a type clips one
end (Q4_0, Q5_0, Q3_K): such a product has lost more than rounding.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type

TENSOR_LIMIT = 1.35
"""Measured over predicted root mean square error of a whole tensor, at most."""
BLOCK_LIMIT = 2.2
"""The same for one block."""

_F16_SPACING = 2.0**-24
"""Distance of neighbouring f16 numbers near zero, where scales of small weights lie."""


@dataclass(frozen=True)
class _Grid:
    """How a type rounds. group: values that share a step; levels: steps between the bounds.

    symmetric: the bounds are +-max |x|, else min and max; zero: the lower bound is never above 0 (K-quants store it
    unsigned); scale_levels: steps of the scales themselves, in the block's f16 scale (1: each group has its own).
    """

    group: int
    levels: int
    symmetric: bool
    zero: bool = False
    scale_levels: int = 1


_GRIDS = {
    Type.Q8_0: _Grid(32, 127, symmetric=True),
    Type.Q4_0: _Grid(32, 8, symmetric=True),
    Type.Q5_0: _Grid(32, 16, symmetric=True),
    Type.Q4_1: _Grid(32, 15, symmetric=False),
    Type.Q5_1: _Grid(32, 31, symmetric=False),
    Type.Q2_K: _Grid(16, 3, symmetric=False, zero=True, scale_levels=15),
    Type.Q3_K: _Grid(16, 4, symmetric=True, scale_levels=32),
    Type.Q4_K: _Grid(32, 15, symmetric=False, zero=True, scale_levels=63),
    Type.Q5_K: _Grid(32, 31, symmetric=False, zero=True, scale_levels=63),
    Type.Q6_K: _Grid(16, 32, symmetric=True, scale_levels=128),
}
_FLOATS = {Type.F32: 0.0, Type.F16: 2.0**-10, Type.BF16: 2.0**-7}
"""Largest step relative to the value."""

KNOWN_TYPES = frozenset(_GRIDS) | frozenset(_FLOATS)


def block_of(kind: Type, columns: int) -> int:
    """Values that are judged together: a block of the type, for float types a row."""
    return columns if kind in _FLOATS else GGML_QUANT_SIZES[kind][0]


def predicted_square_error(source: np.ndarray, kind: Type) -> np.ndarray:
    """Expected squared error of each block. source: floats of shape (blocks, block), contiguous; result: (blocks,)."""
    if kind in _FLOATS:
        floor = source.shape[1] * _F16_SPACING**2 if kind == Type.F16 else 0.0
        return (_FLOATS[kind] ** 2 * np.einsum("ij,ij->i", source, source) + floor) / 12
    grid = _GRIDS[kind]
    low, high = _bounds(source, grid.group)
    if grid.symmetric:
        span, offset = np.maximum(high, -low), np.zeros_like(low)
    else:
        low = np.minimum(low, 0) if grid.zero else low
        span, offset = high - low, -low
    variance = np.square(span / grid.levels) / 12
    if grid.scale_levels > 1:
        # The lower bounds share one scale a block: its step shifts all values of a group alike.
        variance += (np.square(offset.max(1) / grid.scale_levels) / 12)[:, None]
    # Scales and lower bounds are f16 numbers: off by a share of the largest value, and near zero by half a spacing
    # times the value's level. Where values are rounded once more with the kept scale, only small scales matter.
    variance += np.square(np.maximum(high, -low) * _FLOATS[Type.F16]) / 12
    coarse = _F16_SPACING / 2 * grid.levels * grid.scale_levels
    if grid.scale_levels > 1:
        scale = span / (grid.levels * grid.scale_levels)
        coarse = coarse * np.minimum(1, _F16_SPACING / np.maximum(scale, np.finfo(np.float32).tiny))
    variance += np.square(coarse) / 3
    return np.asarray(variance.sum(1) * grid.group)


def _bounds(source: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value of each group, (blocks, groups) each; group is a power of two."""
    low = high = source.reshape(-1)
    # Halving over strides keeps to NumPy's vector loops: four times as fast as a reduction over a short axis.
    while group > 1:
        low, high, group = np.minimum(low[0::2], low[1::2]), np.maximum(high[0::2], high[1::2]), group // 2
    return low.reshape(len(source), -1), high.reshape(len(source), -1)


def cosine_floor(relative_rms: float) -> float:
    """Smallest cosine between a vector and one that is `relative_rms` of its length away."""
    return sqrt(max(0.0, 1 - relative_rms**2))
