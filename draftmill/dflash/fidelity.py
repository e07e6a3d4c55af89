"""How far a stored tensor is from its source: gathered piece by piece, in float64."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TensorError:
    """cosine: of stored and source values as vectors. relative_rms: of the difference, over that of the source.

    Both are None for a source of zeros only. largest: the greatest absolute difference. padded_columns: added for the
    encoding's tiles.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    cosine: float | None
    relative_rms: float | None
    largest: float
    padded_columns: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Fidelity:
    """Sums over the pieces of one tensor."""

    def __init__(self) -> None:
        self._product = self._source = self._stored = self._off = self._largest = 0.0

    def add(self, source: np.ndarray, stored: np.ndarray) -> None:
        """float32 arrays of one shape, finite."""
        a, b = source.reshape(-1).astype(np.float64), stored.reshape(-1).astype(np.float64)
        off = b - a
        # einsum, since the threads of a BLAS under those of the caller wait more than they work.
        self._product += float(np.einsum("i,i->", a, b))
        self._source += float(np.einsum("i,i->", a, a))
        self._stored += float(np.einsum("i,i->", b, b))
        self._off += float(np.einsum("i,i->", off, off))
        self._largest = max(self._largest, float(np.abs(off, out=off).max(initial=0.0)))

    @property
    def all_zero(self) -> bool:
        """Whether the source was."""
        return self._source == 0

    def merge(self, other: "Fidelity") -> None:
        """Adds the sums of another piece."""
        self._product += other._product
        self._source += other._source
        self._stored += other._stored
        self._off += other._off
        self._largest = max(self._largest, other._largest)

    def error(self, name: str, kind: str, shape: tuple[int, ...], padded_columns: int) -> TensorError:
        return TensorError(
            name,
            kind,
            shape,
            min(1.0, self._product / math.sqrt(self._source * self._stored)) if self._source and self._stored else None,
            math.sqrt(self._off / self._source) if self._source else None,
            self._largest,
            padded_columns,
        )
