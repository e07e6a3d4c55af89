"""What is measured of plain values while they pass by: finiteness, magnitudes, runs; the smallest spans whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from draftmill.dflash.gate_bins import (
    BF16_LARGEST_WEIGHT,
    KEYS,
    LARGEST_WEIGHT,
    OCTAVE,
    all_below,
    key_value,
    magnitude_counts,
    octaves,
    quantile_bin,
    stride,
)
from draftmill.dflash.gate_order import Ordered, blocks_to_keep, find_order
from draftmill.dflash.gate_result import Histogram
from draftmill.q4nx.tiles import from_bf16

PLAIN_SAMPLE = 1 << 18
"""Values of which magnitudes are taken, spread evenly; all are looked at for infinities."""
PRINTS = 1 << 15
"""Most words that are kept of a matrix to tell whether it repeats itself."""
TINY = 24
"""Octaves below the 90th percentile from which on a value is counted as tiny."""
_WORD = 8
_BETWEEN_LOOKS = 41
"""Words from one look for a run to the next: odd, so that looks wander over the 32 rows of a block."""
_WORTH = 4
"""Looks in a piece that have to see a word repeated before runs are measured."""


class PlainStatistics:
    """Of a tensor of BF16 or F32 values. `head`: its first values as stored, at most `keep` of them.

    matrix: rows and columns of a matrix in blocks of 32 rows, whose order is told from its first blocks: `ordered`.
    line: values of a line as they lie in the file, of a matrix that must not repeat itself; 0 for others.
    Of such ones `prints` and `longest_run` are taken: the most bytes in one piece through which one word goes on.
    """

    def __init__(
        self, dtype: str, count: int, keep: int = 0, line: int = 0, matrix: tuple[int, int] | None = None
    ) -> None:
        self.dtype = dtype
        self.count = count
        self.not_finite = 0
        self.negative = 0
        self.first_bad: int | None = None
        self.too_large = 0
        self.first_large: int | None = None
        self.all_zero = True
        self.longest_run, self.run_at = 0, 0
        self._stored = np.dtype("<f4" if dtype == "F32" else "<u2")
        self._matrix = matrix
        self.ordered: Ordered | None = None
        self.head = np.empty(min(blocks_to_keep(*matrix) if matrix else keep, count), self._stored)
        # Odd, so that it meets every row of a block.
        self.every = stride(count, PLAIN_SAMPLE) | 1
        self._keys = np.zeros(KEYS, np.int64)
        self._half_keys = np.zeros(KEYS, np.int64)
        self._reached: dict[tuple[bool, bool], np.ndarray] = {}
        words = max(1, line * self.width // _WORD)
        self._print_every = words * stride(count * self.width // _WORD // words, PRINTS) if line else 0
        self._prints: list[np.ndarray] = []

    @property
    def width(self) -> int:
        return self._stored.itemsize

    def take(self, offset: int, data: np.ndarray) -> None:
        stored = data.view(self._stored)
        first = offset // self.width
        if self.all_zero:
            # As bits: a comparison of signalling NaNs would warn.
            bits = stored.view(np.uint32) & 0x7FFFFFFF if self.dtype == "F32" else stored & 0x7FFF
            self.all_zero = not bits.any()
        if self.dtype == "F32" or not all_below(stored, BF16_LARGEST_WEIGHT):
            self._look_closer(first, stored)
        if first < len(self.head):
            self.head[first : first + len(stored)] = stored[: len(self.head) - first]
            if self._matrix and first + len(stored) >= len(self.head):
                # Here, since the pass waits for its digest and not for this.
                self.ordered = find_order(self.head, *self._matrix)
                self.head = self.head[:0].copy()
        if self._print_every:
            self._look_for_repeats(offset, data)
        some = stored[-first % self.every :: self.every]
        values = some if self.dtype == "F32" else from_bf16(some)
        self.negative += int(np.count_nonzero(values < 0))
        self._keys += magnitude_counts(np.ascontiguousarray(values))
        if self.dtype == "BF16":
            self._half_keys += magnitude_counts(some.view(np.float16).astype(np.float32))

    def _look_closer(self, first: int, stored: np.ndarray) -> None:
        every = stored if self.dtype == "F32" else from_bf16(stored)
        bad = ~np.isfinite(every)
        large = (np.abs(every) > LARGEST_WEIGHT) & ~bad
        if large.any():
            self.too_large += int(np.count_nonzero(large))
            self.first_large = first + int(np.argmax(large)) if self.first_large is None else self.first_large
        if bad.any():
            self.not_finite += int(np.count_nonzero(bad))
            self.first_bad = first + int(np.argmax(bad)) if self.first_bad is None else self.first_bad

    def _look_for_repeats(self, offset: int, data: np.ndarray) -> None:
        # Pieces begin where tensors and pages do: mostly at whole words.
        skipped = -offset % _WORD
        words = data[skipped : len(data) - (len(data) - skipped) % _WORD].view("<u8")
        if len(words) < 2:
            return
        first = (offset + skipped) // _WORD
        self._prints.append(words[-first % self._print_every :: self._print_every].copy())
        looks = words[:-1:_BETWEEN_LOOKS] == words[1::_BETWEEN_LOOKS]
        if np.count_nonzero(looks) >= _WORTH:
            changes = np.flatnonzero(np.concatenate(([True], words[1:] != words[:-1], [True])))
            lengths = np.diff(changes) * _WORD
            longest = int(lengths.argmax())
            if lengths[longest] > self.longest_run:
                self.longest_run = int(lengths[longest])
                self.run_at = (offset + skipped + int(changes[longest]) * _WORD) // self.width

    @property
    def prints(self) -> np.ndarray:
        """Words of the matrix, spread evenly, uint64; 0 where a word holds one value only."""
        words = np.concatenate([np.empty(0, np.uint64), *self._prints])
        turned = words << np.uint64(8 * self.width) | words >> np.uint64(64 - 8 * self.width)
        return np.where(words == turned, np.uint64(0), words)

    def magnitude(self, share: float, *, half: bool = False, zeros: bool = True) -> float:
        """The magnitude below which a share of the values lies, to an eighth of an octave; of the half-float reading
        of the same bits, or without zeros, where asked for. To be asked once all bytes were taken."""
        reached = self._cumulated(half, zeros)
        return key_value(quantile_bin(reached, share)) if reached[-1] else 0.0

    def _cumulated(self, half: bool, zeros: bool) -> np.ndarray:
        if (half, zeros) not in self._reached:
            keys = (self._half_keys if half else self._keys).copy()
            keys[0] *= zeros
            self._reached[half, zeros] = np.cumsum(keys)
        return self._reached[half, zeros]

    @property
    def zero_share(self) -> float:
        """Of the sample."""
        return int(self._keys[0]) / max(1, int(self._keys.sum()))

    @property
    def tiny_share(self) -> float:
        """Of the sample's values that are not zero: those far below the 90th percentile."""
        reached = self._cumulated(False, False)
        edge = max(0, quantile_bin(reached, 0.9) - TINY * OCTAVE)
        return int(reached[edge]) / max(1, int(reached[-1]))

    def magnitudes(self) -> Histogram:
        return octaves(self._keys)


def plain_figures(statistics: PlainStatistics) -> dict[str, Any]:
    """As the report shows them."""
    shares = {"p01": 0.01, "median": 0.5, "p99": 0.99}
    return {
        "values": statistics.count,
        "not_finite": statistics.not_finite,
        "negative": statistics.negative,
        "zero_share": round(statistics.zero_share, 4),
        "looked_at_one_in": statistics.every,
        **{f"magnitude_{name}": statistics.magnitude(share) for name, share in shares.items()},
    }


@dataclass
class Kept:
    """Takes all bytes of a small tensor."""

    size: int

    def __post_init__(self) -> None:
        self.data = np.zeros(self.size, np.uint8)

    def take(self, offset: int, data: np.ndarray) -> None:
        self.data[offset : offset + len(data)] = data


@dataclass
class Zeros:
    """Looks for the first byte that is not zero."""

    begin: int
    first: int | None = None

    def take(self, offset: int, data: np.ndarray) -> None:
        if self.first is None and data.any():
            self.first = self.begin + offset + int(np.argmax(data != 0))
