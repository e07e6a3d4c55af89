"""Products of rows with a draft's matrices: [n, K] -> [n, N], weights whole in memory or packed as they are stored.

The compiled kernel (`panels`) is used where numba is installed, else BLAS (`blas`).
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.package import Package
from draftmill.q4nx.encodings import Encoding

Gemm = Callable[[str, np.ndarray], np.ndarray]
"""(tensor's name, rows [n, K]) -> rows [n, N]: where a projection may run elsewhere."""


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
    """`Package`, `Checkpoint` or `GgufDraft`."""

    config: DraftConfig

    def decode(self, name: str) -> np.ndarray: ...
    def decode_rows(self, name: str, rows: np.ndarray) -> np.ndarray: ...
    def close(self) -> None: ...


class Matrix(Protocol):
    def times(self, rows: np.ndarray) -> np.ndarray: ...


class Host(Protocol):
    """Who multiplies: `panels` or `blas`.

    packed: None for an encoding that only the other keeps packed. exact: `product`, with the same bits for a row
    whatever rows come with it. matmul: as numpy's, of stacked matrices.
    """

    def plain(self, values: np.ndarray) -> Matrix: ...
    def packed(self, encoding: Encoding, data: np.ndarray, dtype: np.dtype) -> Matrix | None: ...
    def exact(self, product: Gemm) -> Gemm: ...
    def matmul(self, rows: np.ndarray, matrices: np.ndarray) -> np.ndarray: ...


def _host(compiled: bool) -> Host:
    if compiled:
        from draftmill.dflash.forward import panels

        return panels
    from draftmill.dflash.forward import blas

    return blas


class Weights:
    """A draft's tensors by the mill's names, each decoded when it is first asked for and kept.

    compiled: by the kernel, or by BLAS; None: as can be had.
    """

    def __init__(self, source: Source, dtype: np.dtype, *, compiled: bool | None = None) -> None:
        self.source = source
        self.dtype = dtype
        self.compiled = find_spec("numba") is not None if compiled is None else compiled
        self._host = _host(self.compiled)
        self.exact = self._host.exact(self.product)
        self.matmul = self._host.matmul
        self._kept: dict[str, np.ndarray] = {}
        self._matrices: dict[str, Matrix] = {}

    def tensor(self, name: str) -> np.ndarray:
        """For what is no matrix of a product."""
        if name not in self._kept:
            self._kept[name] = self.source.decode(name).astype(self.dtype, copy=False)
        return self._kept[name]

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Some rows of a matrix; the matrix itself is not kept."""
        return self.source.decode_rows(name, ids).astype(self.dtype, copy=False)

    def product(self, name: str, rows: np.ndarray) -> np.ndarray:
        """rows [n, K] times a matrix [N, K] -> [n, N]."""
        if name not in self._matrices:
            self._matrices[name] = self._matrix(name)
        return self._matrices[name].times(rows)

    def _matrix(self, name: str) -> Matrix:
        return self._host.plain(self.source.decode(name).astype(self.dtype, copy=False))


class PackedWeights(Weights):
    """Matrices stay packed as the container has them, and are decoded by tiles during a product."""

    def __init__(self, source: Package, dtype: np.dtype, *, compiled: bool | None = None) -> None:
        super().__init__(source, dtype, compiled=compiled)
        self._package = source

    def _matrix(self, name: str) -> Matrix:
        located = self._package.inventory.by_name[name]
        encoding = located.encoding
        if encoding is None or not encoding.packed:
            return super()._matrix(name)
        data = self._package.container.bytes(located.entry.name)
        return self._host.packed(encoding, data, self.dtype) or super()._matrix(name)
