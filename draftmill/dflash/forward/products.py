"""Products of rows with a draft's matrices: [n, K] -> [n, N], weights whole in memory or decoded as they are used.

A product of BLAS may sum in another order for another number of rows, and a cache that is grown in steps would then
part from one pass in the last bit. So a context row goes through in blocks of one height; a greater height is used for
a matrix only after it has given the same bits.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.package import Package
from draftmill.q4nx.encodings import Encoding
from draftmill.q4nx.matrix import decode
from draftmill.q4nx.tiles import ROWS

Gemm = Callable[[str, np.ndarray], np.ndarray]
"""(tensor's name, rows [n, K]) -> rows [n, N]: where a projection may run elsewhere."""
HEIGHT, TALL = 16, 256
"""Rows of a block."""


def checked(gemm: Gemm) -> Gemm:
    """What runs elsewhere is held to what it promises. Its products raise ValueError with the tensor's name."""

    def product(name: str, rows: np.ndarray) -> np.ndarray:
        found = gemm(name, rows)
        if not isinstance(found, np.ndarray) or found.ndim != 2 or len(found) != len(rows):
            shape = list(found.shape) if isinstance(found, np.ndarray) else type(found).__name__
            raise ValueError(f"gemm gave {shape} for {name}: it must be an array with {len(rows)} rows")
        if not np.isfinite(found).all():
            raise ValueError(f"gemm gave values that are infinite or no numbers for {name}")
        return found

    return product


class Source(Protocol):
    """`Package` or `Checkpoint`."""

    config: DraftConfig

    def decode(self, name: str) -> np.ndarray: ...
    def decode_rows(self, name: str, rows: np.ndarray) -> np.ndarray: ...
    def close(self) -> None: ...


class Weights:
    """A draft's tensors by the mill's names, each decoded when it is first asked for and kept."""

    def __init__(self, source: Source, dtype: np.dtype) -> None:
        self.source = source
        self.dtype = dtype
        self._kept: dict[str, np.ndarray] = {}

    def tensor(self, name: str) -> np.ndarray:
        if name not in self._kept:
            self._kept[name] = self.source.decode(name).astype(self.dtype, copy=False)
        return self._kept[name]

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Some rows of a matrix; the matrix itself is not kept."""
        return self.source.decode_rows(name, ids).astype(self.dtype, copy=False)

    def product(self, name: str, rows: np.ndarray) -> np.ndarray:
        return rows @ self.tensor(name).T


class PackedWeights(Weights):
    """Matrices stay packed as the container has them, and are decoded a band of tiles at a time during a product.

    Bands are decoded side by side, one a core, and multiplied in turn: BLAS itself works on every core.
    """

    BAND = 1 << 20
    """Weights decoded by a core at once: 4 MiB of float32, which stays in its cache until the product has read it."""

    def __init__(self, source: Package, dtype: np.dtype) -> None:
        super().__init__(source, dtype)
        self._package = source
        self._cores = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._cores, thread_name_prefix="draftmill-packed")
        self._bands = [np.empty(0, np.float32)] * self._cores

    def product(self, name: str, rows: np.ndarray) -> np.ndarray:
        located = self._package.inventory.by_name[name]
        encoding = located.encoding
        if encoding is None or not encoding.packed:
            return super().product(name, rows)
        data = self._package.container.bytes(located.entry.name)
        out = np.empty((len(rows), encoding.rows), self.dtype)
        height = max(ROWS, self.BAND // encoding.columns // ROWS * ROWS)
        firsts = range(0, encoding.rows, height)
        for at in range(0, len(firsts), self._cores):
            group = firsts[at : at + self._cores]
            decoded = self._pool.map(
                lambda core, first: self._decode(encoding, data, core, first, height), range(len(group)), group
            )
            for first, weights in zip(group, decoded, strict=True):
                out[:, first : first + len(weights)] = rows @ weights.astype(self.dtype, copy=False).T
        return out

    def _decode(self, encoding: Encoding, data: np.ndarray, core: int, first: int, height: int) -> np.ndarray:
        part = replace(encoding, rows=min(height, encoding.rows - first))
        if self._bands[core].size < height * encoding.columns:
            self._bands[core] = np.empty(height * encoding.columns, np.float32)
        band = self._bands[core][: part.rows * encoding.columns].reshape(part.rows, encoding.columns)
        row = encoding.nbytes // encoding.rows
        return decode(part, data[first * row : first * row + part.nbytes], band)


class RowExact:
    """Products in which a row's result does not depend on the rows beside it."""

    def __init__(self, gemm: Gemm) -> None:
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
