"""Whether the fusion matrix lies in the order that its shape declares, [N / 32, K, 32] (q4nx.md section 2.4).

Of trained weights, those that share an input column are alike in magnitude, and more so than those that share an
output row (seed page: correlations of 0.107 and 0.022 on Bolt's fc). So each known order is tried: where its columns
are the matrix's own, one half of a column's rows tells the size of the other half; where they are mixed from several,
it tells half as much at most. Zeros are left out of all sums, so rows or parts of rows without weights tell nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from draftmill.dflash.gate_bins import BF16_LARGEST_WEIGHT, LARGEST_WEIGHT
from draftmill.q4nx.tiles import ROWS, from_bf16

BLOCKS = 8
LARGEST_SAMPLE = 8 << 20
"""Bytes of the matrix that are kept for it: whole blocks from its beginning."""
SAMPLE = (64, 512)
"""Rows and columns of the matrix that are looked at under each order."""
HEIGHTS = (2, 4, 8, 16, 64, 128, 256)
"""Rows of blocks in orders that are tried beside 32."""
_SIGMAS = 6.0
_BETTER = 1.3
"""Between 1 and the factor 2 by which the nearest wrong order is worse."""
_EVEN = 1.1
"""What another order has to be better by to be named: where a tap is zero, blocks of 16 rows fit nearly as well."""
_REACH = 3
"""Octaves around the median that magnitudes are cut off at: one value alone would decide."""
_MOST, _MOST_ELSEWHERE = 0.8, 0.25
"""Share of the spread that columns explain of weights at most, in the declared order and in any other (drafts have 0.04
to 0.1); made-up patterns have more."""
_FEWEST = 4
"""Values that a mean needs."""
_LOOKS = 31  # values from one look for weights to the next
_WINDOW = 256
"""Columns of which neighbours are shown."""
_OUTLIER = 16.0
"""Of neighbours, magnitudes are cut off at so many means."""


class Order(StrEnum):
    DECLARED = "as declared"
    OTHER = "another"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Neighbours:
    """Correlations of magnitudes in the declared order: the next row, 32 rows on, the next column, 32 columns on."""

    next_row: float
    rows_32_on: float
    next_column: float
    columns_32_on: float

    def __str__(self) -> str:
        return (
            f"next row {self.next_row:.3f} and 32 rows on {self.rows_32_on:.3f}, "
            f"next column {self.next_column:.3f} and 32 columns on {self.columns_32_on:.3f}"
        )


@dataclass(frozen=True)
class Ordered:
    """named: the order that fits best. shares: order -> share of the spread of magnitudes that its columns explain.
    noise: the standard error of a share. neighbours: as the declared order has them."""

    order: Order
    named: str
    shares: dict[str, float]
    noise: float
    neighbours: Neighbours

    def as_json(self) -> dict[str, object]:
        """What is not defined, as of values that are all the same, is None."""
        return {
            "fits_best": self.named,
            "explained": {name: _rounded(share) for name, share in self.shares.items()},
            "noise": _rounded(self.noise),
            "neighbours": {name: _rounded(value) for name, value in vars(self.neighbours).items()},
        }

    def __str__(self) -> str:
        best = f"columns explain {self.shares[self.named]:.3f} of the spread {self.named}"
        return f"{best}, {self.shares[DECLARED]:.3f} as declared; {self.neighbours}"


Place = Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]


@dataclass(frozen=True)
class Layout:
    """An order. place: where element (n, k) of an N x K matrix lies. height: rows that lie together; 0 where whole
    columns do. across: K is a multiple of it."""

    place: Place
    height: int
    across: int = 1


def _in_blocks(height: int) -> Layout:
    return Layout(lambda n, k, _, width: n // height * height * width + k * height + n % height, height)


def _in_tiles(across: int) -> Layout:
    return Layout(
        lambda n, k, _, width: n // ROWS * ROWS * width + k // across * ROWS * across + n % ROWS * across + k % across,
        ROWS,
        across,
    )


DECLARED = "in blocks of 32 rows"
ORDERS: dict[str, Layout] = {
    DECLARED: _in_blocks(ROWS),
    "row-major": Layout(lambda n, k, _, width: n * width + k, 1),
    "column-major": Layout(lambda n, k, rows, _: k * rows + n, 0),
    "in blocks of 32 columns": Layout(lambda n, k, rows, _: k // ROWS * rows * ROWS + n * ROWS + k % ROWS, 0),
    "in tiles of 32 x 32": _in_tiles(32),
    "in tiles of 32 x 256": _in_tiles(256),
    **{f"in blocks of {height} rows": _in_blocks(height) for height in HEIGHTS},
}


def blocks_to_keep(rows: int, columns: int) -> int:
    """Values of the matrix that `find_order` wants: whole blocks of 32 rows."""
    block = columns * ROWS
    return min(rows // ROWS, max(2, min(BLOCKS, LARGEST_SAMPLE // (2 * block)))) * block


def find_order(stored: np.ndarray, rows: int, columns: int) -> Ordered | None:
    """stored: bf16 bits of the first blocks of a matrix of rows x columns, as they lie in the file. None when there
    are fewer than two blocks with weights, or 64 columns or fewer, where no order shows.

    Another when some other order fits better than the declared one by more than chance can, counting for that also
    what its rows explain; and when the declared order's columns do not hold together from half to half or from block
    to block. Undetermined when no order fits by more than chance, when two fit about equally well, and when
    magnitudes are no weights'.
    """
    block = columns * ROWS
    blocks = stored[: len(stored) // block * block].reshape(-1, block)
    if columns <= 2 * ROWS or np.count_nonzero(blocks[:, ::_LOOKS].any(1)) < 2:
        return None
    found = {name: _explained(stored, layout, rows, columns) for name, layout in ORDERS.items()}
    shares = {name: fit[0] for name, fit in found.items() if fit and math.isfinite(fit[0])}
    declared = found[DECLARED]
    if declared is None or DECLARED not in shares:
        return None
    named = max(shares, key=lambda name: shares[name] * (_EVEN if name == DECLARED else 1))
    order = _judge(stored, rows, columns, shares, named, declared[1])
    return Ordered(order, named, shares, declared[1], _neighbours(blocks))


def _judge(stored: np.ndarray, rows: int, columns: int, shares: dict[str, float], named: str, noise: float) -> Order:
    best, chance = shares[named], _SIGMAS * noise
    if not chance < best < _MOST or min(shares.values()) < -max(chance, best / 8):
        return Order.UNDETERMINED
    declared, down = _levels(stored, ORDERS[DECLARED], rows, columns)
    parts = _parts(declared, down)
    torn = _torn(parts, chance) and min(parts) > -chance - max(parts) / 4
    if named == DECLARED:
        # Blocks of other heights are told by halves of columns.
        second = max(shares.get(name, 0.0) for name, layout in ORDERS.items() if layout.height not in (*HEIGHTS, ROWS))
        if best > _BETTER * second and not _torn(parts, chance):
            return Order.DECLARED
        return Order.OTHER if torn else Order.UNDETERMINED
    known = max(shares[DECLARED], 0) + max(_share(declared.T, np.arange(declared.shape[1]) % 2)[0], 0)
    sound = best < _MOST_ELSEWHERE and not _torn(_parts(*_levels(stored, ORDERS[named], rows, columns)), chance)
    return Order.OTHER if sound and (torn or best > _BETTER * known + chance / 2) else Order.UNDETERMINED


def _parts(levels: np.ndarray, down: np.ndarray) -> list[float]:
    """What columns explain by other halves of their rows: every second row, halves of blocks, every second block."""
    splits = (down % 2, down % ROWS // (ROWS // 2), down // ROWS % 2)
    return [share for split in splits if math.isfinite(share := _share(levels, split)[0])]


def _torn(parts: list[float], chance: float) -> bool:
    """Whether columns do not hold together: in the matrix's own order all parts are about alike."""
    return not parts or max(parts) - min(parts) > max(math.sqrt(2) * chance, max(parts) / 2)


def _explained(stored: np.ndarray, layout: Layout, rows: int, columns: int) -> tuple[float, float] | None:
    """`_share` under a layout; None where the sample does not hold enough of it."""
    if columns % layout.across:
        return None
    levels, down = _levels(stored, layout, rows, columns)
    if levels.shape[0] < 2 * _FEWEST or levels.shape[1] < ROWS:
        return None
    return _share(levels, np.random.default_rng(1).permutation(len(down)) % 2)


def _levels(stored: np.ndarray, layout: Layout, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Octaves of magnitudes, float32, of some rows and columns, and which rows those are; NaN for zeros and for what
    is no weight."""
    n, k = rows, columns
    if layout.height:
        n = min(n, len(stored) // k // layout.height * layout.height)
    else:
        k = min(k, len(stored) // n // ROWS * ROWS)
    rng = np.random.default_rng(0)
    down, across = (
        np.sort(rng.choice(size, min(size, most), replace=False)) for size, most in zip((n, k), SAMPLE, strict=True)
    )
    bits = stored[layout.place(down[:, None], across, rows, columns)] & np.uint16(0x7FFF)
    levels = bits.astype(np.float32) / 128
    levels[(bits == 0) | (bits > BF16_LARGEST_WEIGHT)] = np.nan
    return levels, down


def _share(levels: np.ndarray, halves: np.ndarray) -> tuple[float, float]:
    """Share of the spread of levels that columns explain, and its standard error: the covariance of a column's means
    over two parts of its rows (halves: 0 or 1 for each row). NaN where it is not defined."""
    known = np.isfinite(levels)
    if not known.any():
        return math.nan, math.nan
    weights = known.astype(np.float32)
    values = np.where(known, levels, np.float32(0))
    values = np.clip(values - values.sum() / weights.sum(), -_REACH, _REACH) * weights
    rows = values.sum(1, keepdims=True) / np.maximum(weights.sum(1, keepdims=True), 1)
    values = (values - rows) * weights
    spread = float(np.einsum("ij,ij", values, values)) / float(weights.sum())
    counts = [weights[halves == half].sum(0) for half in (0, 1)]
    good = np.minimum(*counts) >= _FEWEST
    if spread <= 0 or np.count_nonzero(good) < ROWS:
        return math.nan, math.nan
    means = [values[halves == half].sum(0)[good] / count[good] for half, count in enumerate(counts)]
    a, b = (mean - mean.mean() for mean in means)
    error = 1 / math.sqrt(float(counts[0][good].mean()) * float(counts[1][good].mean()) * len(a))
    return float(np.mean(a * b)) / spread, error


def _neighbours(blocks: np.ndarray) -> Neighbours:
    values = blocks[blocks[:, ::_LOOKS].any(1), : _WINDOW * ROWS]
    with np.errstate(all="ignore"):
        magnitudes = np.abs(from_bf16(values)).astype(np.float64)
        magnitudes[~(magnitudes <= LARGEST_WEIGHT)] = 0  # counted elsewhere
        magnitudes = np.minimum(magnitudes, _OUTLIER * magnitudes.mean())
        along = (_correlation(magnitudes[:, :-step], magnitudes[:, step:]) for step in (1, ROWS, ROWS**2))
        next_row, next_column, columns_on = along
        return Neighbours(next_row, _correlation(magnitudes[:-1], magnitudes[1:]), next_column, columns_on)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, of two arrays of one shape; NaN where it is not defined."""
    a, b = a - a.mean(), b - b.mean()
    # float64, so that figures do not depend on the machine; einsum, since a BLAS's threads cost more than they save.
    spread = math.sqrt(float(np.einsum("ij,ij", a, a))) * math.sqrt(float(np.einsum("ij,ij", b, b)))
    return float(np.einsum("ij,ij", a, b)) / spread if spread > 0 else math.nan


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
