"""The block-matrix layout of BF16, declared [N / 32, K, 32]: element (n, k) at (n // 32) K 32 + k 32 + n mod 32.

Source: q4nx.md, section 2.4 (a draft's fusion matrix; Gemma 4's matrix-times-vector weights).
"""

import numpy as np

from draftmill.q4nx.tiles import ROWS, from_bf16, to_bf16


def decode(blocks: np.ndarray, out: np.ndarray) -> None:
    """Bits uint16 [b, k, 32] -> out float32 [b, 32, k]."""
    np.left_shift(blocks.swapaxes(-1, -2), 16, out=out.view(np.uint32), dtype=np.uint32)


def decode_rows(blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of the whole matrix [b, k, 32], int [m] -> float32 [m, k]."""
    return from_bf16(blocks[rows // ROWS, :, rows % ROWS])


def encode(values: np.ndarray) -> np.ndarray:
    """float32 [n, k] -> bits uint16 [n / 32, k, 32], rounded to nearest even."""
    n, k = values.shape
    return np.ascontiguousarray(to_bf16(values).reshape(n // ROWS, ROWS, k).swapaxes(-1, -2))
