"""Attention of block rows over context and block, and the rule which keys a row sees.

The published definition is symmetric and exclusive: -w < D < w, D = query position - key position. Ports differ
(dflash.md 3.4), so the rule is a parameter: each name says whose forward it reproduces.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np


class WindowRule(StrEnum):
    """What a window of w lets a row see.

    EXCLUSIVE: |D| < w (z-lab, NeMo). INCLUSIVE: |D| <= w (transformers 5). LEFT: D < w only (llama.cpp, z-lab's MLX).
    IGNORED: everything (z-lab's first code with sdpa).
    """

    EXCLUSIVE = "exclusive"
    INCLUSIVE = "inclusive"
    LEFT = "left"
    IGNORED = "ignored"


def hidden_keys(
    queries: np.ndarray, keys: np.ndarray, window: int | None, rule: WindowRule, causal: bool
) -> np.ndarray:
    """bool [queries, keys], True where a row must not look. queries, keys: absolute positions.

    window: None on a layer that does not slide, which sees everything. causal: a sliding layer sees no later row.
    """
    distance = queries[:, None] - keys[None, :]
    if window is None:
        return np.zeros(distance.shape, bool)
    match rule:
        case WindowRule.EXCLUSIVE:
            hidden = np.abs(distance) >= window
        case WindowRule.INCLUSIVE:
            hidden = np.abs(distance) > window
        case WindowRule.LEFT:
            hidden = distance >= window
        case WindowRule.IGNORED:
            hidden = np.zeros(distance.shape, bool)
    return hidden | (distance < 0) if causal else hidden


def attend(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    hidden: np.ndarray,
    matmul: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.matmul,
) -> np.ndarray:
    """[B, query heads, d] over keys and values [kv heads, n, d] -> [B, query heads * d].

    Query head h reads key-value head h div (query heads / kv heads). hidden: bool [B, n], with a key left in each row.
    matmul: as numpy's, of stacked matrices.
    """
    rows, heads, size = queries.shape
    groups = keys.shape[0]
    grouped = queries.transpose(1, 0, 2).reshape(groups, heads // groups * rows, size)
    scores = matmul(grouped, keys.transpose(0, 2, 1))
    scores *= scores.dtype.type(size**-0.5)
    if hidden.any():
        scores.reshape(groups, heads // groups, rows, -1)[..., hidden] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return matmul(scores, values).reshape(heads, rows, size).transpose(1, 0, 2).reshape(rows, heads * size)
