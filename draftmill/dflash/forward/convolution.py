"""The grouped dynamic convolution of generation 2 (dflash.md 5.3): one pair of kernels around each sublayer."""

import numpy as np


class Kernels:
    """One sublayer's kernels for one block: before it (side 0) and after it (side 1).

    base: [2, taps, H]; dynamic: [B, 2 * taps * H / group], the projection of the normed, un-convolved rows. A row's
    kernel at tap k is base[side, k] + its own dynamic one for the channel's group.
    """

    def __init__(self, base: np.ndarray, dynamic: np.ndarray, group: int) -> None:
        sides, taps, hidden = base.shape
        own = dynamic.reshape(-1, sides, taps, hidden // group)
        self._kernels = base[None] + np.repeat(own, group, axis=3)

    def before(self, rows: np.ndarray) -> np.ndarray:
        """The convolved input of the sublayer, [B, H]."""
        return self._side(0, rows)

    def after(self, rows: np.ndarray) -> np.ndarray:
        """The convolved output of the sublayer, [B, H]."""
        return self._side(1, rows)

    def _side(self, side: int, rows: np.ndarray) -> np.ndarray:
        # Rows before the block count as zero: nothing crosses blocks.
        kernels = self._kernels[:, side]
        out = kernels[:, 0] * rows
        for tap in range(1, min(kernels.shape[1], len(rows))):
            out[tap:] += kernels[tap:, tap] * rows[:-tap]
        return out
