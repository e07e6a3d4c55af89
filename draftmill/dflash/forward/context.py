"""The draft's cache: keys (normed, rotated) and values of context rows in every layer (dflash.md 3.5).

A context row is projected once, when it is committed, and read by every later pass. Block rows are never kept.
"""

from typing import TYPE_CHECKING

import numpy as np

from draftmill.dflash.forward.trace import Trace

if TYPE_CHECKING:
    from draftmill.dflash.forward.draft import Draft

_FIRST_CAPACITY = 64


class KvCache:
    """Context rows at absolute positions start, start + 1, ... Made by `Draft.cache`.

    Grown in steps it holds the same bits as grown at once, so `forward_cached` gives exactly what `Draft.forward` does.
    trace: of every context row, and of the newest block; None where none was asked for.
    """

    def __init__(self, draft: "Draft", start: int, trace: Trace | None = None) -> None:
        self.trace = trace
        self._draft = draft
        self._start = start
        self._length = 0
        config = draft.config
        shape = (config.num_hidden_layers, config.num_key_value_heads, _FIRST_CAPACITY, config.head_dim)
        self._keys = np.empty(shape, draft.weights.dtype)
        self._values = np.empty(shape, draft.weights.dtype)

    def __len__(self) -> int:
        """Context rows held."""
        return self._length

    @property
    def end(self) -> int:
        """The position of the next row."""
        return self._start + self._length

    def extend(self, features: np.ndarray) -> None:
        """Appends context rows. features [n, taps * H]. Raises ValueError for another shape."""
        rows = self._draft.context_rows(features, self.trace)
        self._reserve(len(rows))
        positions = self.end + np.arange(len(rows))
        new = slice(self._length, self._length + len(rows))
        for layer in range(len(self._keys)):
            keys, values = self._draft.context_pair(layer, rows, positions)
            self._keys[layer, :, new] = keys.transpose(1, 0, 2)
            self._values[layer, :, new] = values.transpose(1, 0, 2)
            if self.trace is not None:
                self.trace.append(f"layers.{layer}.context.k", keys)
                self.trace.append(f"layers.{layer}.context.v", values)
        self._length += len(rows)

    def forward_cached(self, block: np.ndarray) -> np.ndarray:
        """block [B, H], as in `Draft.forward` -> [B, H] after the final norm. The cache stays as it was."""
        self._reserve(len(block))
        return self._draft.block_rows(self, block)

    def with_block(self, layer: int, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys and values [kv heads, C + B, d] of context and block, and their positions [C + B]."""
        # The block lies behind the context in the same buffer, where the next context row or block will overwrite it.
        end = self._length + len(keys)
        self._keys[layer, :, self._length : end] = keys.transpose(1, 0, 2)
        self._values[layer, :, self._length : end] = values.transpose(1, 0, 2)
        return self._keys[layer, :, :end], self._values[layer, :, :end], self._start + np.arange(end)

    def _reserve(self, more: int) -> None:
        capacity = self._keys.shape[2]
        if self._length + more <= capacity:
            return
        while capacity < self._length + more:
            capacity *= 2
        self._keys, self._values = (self._grown(held, capacity) for held in (self._keys, self._values))

    def _grown(self, held: np.ndarray, capacity: int) -> np.ndarray:
        grown = np.empty((*held.shape[:2], capacity, held.shape[3]), held.dtype)
        grown[:, :, : self._length] = held[:, :, : self._length]
        return grown
