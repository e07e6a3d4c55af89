"""Products by numpy's BLAS, where the compiled kernel cannot be had: matrices whole, or decoded as they are used.

BLAS may sum in another order for another number of rows, and a cache that is grown in steps would then part from one
pass in the last bit. So a context row goes through in blocks of one height; a greater height is used for a matrix only
after it has given the same bits.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from draftmill.q4nx.encodings import Encoding
from draftmill.q4nx.matrix import decode
from draftmill.q4nx.tiles import ROWS

HEIGHT, TALL = 16, 256
"""Rows of a block."""
_BAND = 1 << 20
"""Weights decoded by a core at once: 4 MiB of float32, which stays in its cache until the product has read it."""
_CORES = os.cpu_count() or 1


Product = Callable[[str, np.ndarray], np.ndarray]


class Whole:
    """A matrix [N, K] in memory."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def times(self, rows: np.ndarray) -> np.ndarray:
        """rows [n, K] -> [n, N]."""
        return rows @ self._values.T


class Bands:
    """A matrix that stays packed as the container has it, decoded a band of tiles at a time during a product.

    Bands are decoded side by side, one a core, and multiplied in turn: BLAS itself works on every core.
    """

    def __init__(self, encoding: Encoding, data: np.ndarray, dtype: np.dtype) -> None:
        self._encoding = encoding
        self._data = data
        self._dtype = dtype
        self._height = max(ROWS, _BAND // encoding.columns // ROWS * ROWS)

    def times(self, rows: np.ndarray) -> np.ndarray:
        """rows [n, K] -> [n, N]."""
        out = np.empty((len(rows), self._encoding.rows), self._dtype)
        firsts = range(0, self._encoding.rows, self._height)
        with ThreadPoolExecutor(_CORES) as pool:
            for at in range(0, len(firsts), _CORES):
                group = firsts[at : at + _CORES]
                for first, weights in zip(group, pool.map(self._decoded, group), strict=True):
                    out[:, first : first + len(weights)] = rows @ weights.astype(self._dtype, copy=False).T
        return out

    def _decoded(self, first: int) -> np.ndarray:
        part = replace(self._encoding, rows=min(self._height, self._encoding.rows - first))
        row = self._encoding.nbytes // self._encoding.rows
        return decode(part, self._data[first * row : first * row + part.nbytes])


class RowExact:
    """Products in which a row's result does not depend on the rows beside it."""

    def __init__(self, gemm: Product) -> None:
        self._gemm = gemm
        self._same: dict[str, bool] = {}

    def __call__(self, name: str, rows: np.ndarray) -> np.ndarray:
        done, parts = 0, []
        if len(rows) >= TALL and self._tall_is_same(name, rows[:TALL]):
            while len(rows) - done >= TALL:
                parts.append(self._gemm(name, rows[done : done + TALL]))
                done += TALL
        while done < len(rows):
            parts.append(self._short(name, rows[done : done + HEIGHT]))
            done += HEIGHT
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _short(self, name: str, rows: np.ndarray) -> np.ndarray:
        if len(rows) == HEIGHT:
            return self._gemm(name, rows)
        block = np.zeros((HEIGHT, rows.shape[1]), rows.dtype)
        block[: len(rows)] = rows
        return self._gemm(name, block)[: len(rows)]

    def _tall_is_same(self, name: str, rows: np.ndarray) -> bool:
        if name not in self._same:
            tall = self._gemm(name, rows)
            self._same[name] = bool(np.array_equal(tall[:HEIGHT], self._gemm(name, rows[:HEIGHT])))
        return self._same[name]


def plain(values: np.ndarray) -> Whole:
    """Of values [N, K]."""
    return Whole(values)


def packed(encoding: Encoding, data: np.ndarray, dtype: np.dtype) -> Bands:
    """Of stored bytes, which are used where they lie."""
    return Bands(encoding, data, dtype)


def exact(product: Product) -> RowExact:
    """See `RowExact`."""
    return RowExact(product)


def matmul(rows: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """numpy's own."""
    return rows @ matrices
