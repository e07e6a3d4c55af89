"""Whether the fusion matrix lies in the order that its shape declares, told from magnitudes of neighbours.

Magnitudes that share an input column correlate more strongly than those that share an output row (seed page: 0.107
and 0.022 on Bolt's fc). Under the right reading the next row correlates like the row 32 on, and the next column like
the column 32 on; under a wrong one they contradict each other. Declared is [N / 32, K, 32] (q4nx.md section 2.4).
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from draftmill.dflash.gate_bins import LARGEST_WEIGHT
from draftmill.q4nx.tiles import ROWS, from_bf16

BLOCKS = 8
LARGEST_SAMPLE = 8 << 20
"""Bytes of the matrix that are kept for it: whole blocks from its beginning."""
WINDOW = 1 << 15
"""Values of each block that are looked at, or two rows' worth where that is more."""
_SIGMAS = 6.0
_LARGEST = 2 / math.pi
"""Of magnitudes of independent normal values that share a factor: however it spreads, no correlation is above it."""
_OUTLIER = 16.0
"""Magnitudes are cut off at so many means: one value alone would decide a correlation."""


class Order(StrEnum):
    DECLARED = "as declared"
    ROW_MAJOR = "row-major"
    OTHER = "another"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Neighbours:
    """Correlations of magnitudes under one reading: the next row, 32 rows on, the next column, 32 columns on."""

    next_row: float
    rows_32_on: float
    next_column: float
    columns_32_on: float

    @property
    def contradiction(self) -> float:
        return abs(self.next_row - self.rows_32_on) + abs(self.next_column - self.columns_32_on)

    def of_weights(self, noise: float) -> bool:
        """Whether columns correlate more strongly than rows and nothing is anticorrelated: a made-up pattern, which
        fits any reading by chance, seldom looks so."""
        columns, rows = (self.next_row, self.rows_32_on), (self.next_column, self.columns_32_on)
        return min(columns) > max(rows) and min(rows) > -noise

    def as_json(self) -> dict[str, float | None]:
        """A correlation that is not defined, as between values that are all the same, is None."""
        return {name: round(value, 4) if math.isfinite(value) else None for name, value in vars(self).items()}

    def __str__(self) -> str:
        return (
            f"next row {self.next_row:.3f} and 32 rows on {self.rows_32_on:.3f}, "
            f"next column {self.next_column:.3f} and 32 columns on {self.columns_32_on:.3f}"
        )


@dataclass(frozen=True)
class Ordered:
    """noise: the standard error of a correlation in a sample of this size. same_column: correlations of what the
    declared order puts into one column, 1, 16 and 32 rows apart, each row in units of its mean."""

    order: Order
    declared: Neighbours
    row_major: Neighbours
    same_column: tuple[float, float, float]
    noise: float


def blocks_to_keep(columns: int, rows: int) -> int:
    """Values of the matrix that `find_order` wants: whole blocks of 32 rows."""
    block = columns * ROWS
    return min(rows // ROWS, max(2, min(BLOCKS, LARGEST_SAMPLE // (2 * block)))) * block


def find_order(stored: np.ndarray, columns: int) -> Ordered | None:
    """stored: bf16 bits of the first blocks as they lie in the file. None when there are fewer than two blocks or 64
    columns, where the neighbours that tell orders apart are not there.

    Another when what the declared order puts into one column correlates unequally at 1, 16 and 32 rows: so do
    column-major values and blocks of fewer or more than 32 rows.

    Undetermined when rows and columns do not differ by more than the noise, when neither reading is twice as
    consistent as the other, and when the more consistent one is not of weights.
    """
    block = columns * ROWS
    if len(stored) < 2 * block or columns <= 2 * ROWS:
        return None
    values = stored[: len(stored) // block * block].reshape(-1, block)[:, : max(WINDOW, 2 * columns)]
    values = values[values.any(1)]
    if len(values) < 2:
        return None
    with np.errstate(all="ignore"):
        magnitudes = np.abs(from_bf16(values)).astype(np.float64)
        magnitudes[~(magnitudes <= LARGEST_WEIGHT)] = 0  # counted elsewhere
        magnitudes = np.minimum(magnitudes, _OUTLIER * magnitudes.mean())
        lag = {step: _correlation(magnitudes[:, :-step], magnitudes[:, step:]) for step in (1, ROWS, ROWS**2, columns)}
        lag[block] = _correlation(magnitudes[:-1], magnitudes[1:])
    declared = Neighbours(lag[1], lag[block], lag[ROWS], lag[ROWS**2])
    row_major = Neighbours(lag[columns], lag[block], lag[1], lag[ROWS])
    noise = 1 / math.sqrt(magnitudes[1:].size)
    same_column = _same_column(magnitudes)
    order = _judge(declared, row_major, noise)
    if order != Order.ROW_MAJOR and _disagree(same_column, noise):
        order = Order.OTHER
    elif order == Order.DECLARED and not declared.of_weights(_SIGMAS * noise):
        order = Order.UNDETERMINED
    return Ordered(order, declared, row_major, same_column, noise)


def _same_column(magnitudes: np.ndarray) -> tuple[float, float, float]:
    """Rows are levelled first, so that rows of zeros or of other size do not look like an order of their own."""
    lines = magnitudes.reshape(len(magnitudes), -1, ROWS)
    means = lines.mean(1, keepdims=True)
    level = np.where(means > 0, lines / np.where(means > 0, means, 1) - 1, 0)
    half = ROWS // 2
    pairs = (
        (level[..., :-1], level[..., 1:]),
        (level[..., :half], level[..., half:]),
        (level[:-1], level[1:]),
    )
    first, middle, last = (_correlation(a.reshape(len(a), -1), b.reshape(len(b), -1)) for a, b in pairs)
    return first, middle, last


def _disagree(correlations: tuple[float, float, float], noise: float) -> bool:
    """Whether they differ by more than chance and by more than half of the largest: in one column all are alike.
    Weights in another order correlate less and never clearly against each other; the rest is a made-up pattern."""
    difference = max(correlations) - min(correlations)
    largest = max(correlations)
    of_weights = min(correlations) > -_SIGMAS * noise - largest / 4 and largest < _LARGEST
    return of_weights and difference > max(_SIGMAS * math.sqrt(2) * noise, largest / 2)


def _judge(declared: Neighbours, row_major: Neighbours, noise: float) -> Order:
    a, b = declared.contradiction, row_major.contradiction
    if max(a, b) <= _SIGMAS * noise or not math.isfinite(a + b):
        return Order.UNDETERMINED
    if 2 * a < b:
        return Order.DECLARED
    return Order.ROW_MAJOR if 2 * b < a and row_major.of_weights(_SIGMAS * noise) else Order.UNDETERMINED


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, of two arrays of one shape; NaN where it is not defined."""
    a, b = a - a.mean(), b - b.mean()
    # float64, so that figures do not depend on the machine; einsum, since a BLAS's threads cost more than they save.
    spread = math.sqrt(float(np.einsum("ij,ij", a, a))) * math.sqrt(float(np.einsum("ij,ij", b, b)))
    return float(np.einsum("ij,ij", a, b)) / spread if spread > 0 else math.nan
