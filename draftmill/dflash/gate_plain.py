"""What is measured of plain values while they pass by: finiteness, signs, magnitudes; and the smallest spans whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from draftmill.dflash.gate_bins import (
    BF16_LARGEST_WEIGHT,
    KEYS,
    LARGEST_WEIGHT,
    all_below,
    key_value,
    magnitude_counts,
    octaves,
    quantile_bin,
    stride,
)
from draftmill.dflash.gate_result import Histogram
from draftmill.q4nx.tiles import from_bf16

PLAIN_SAMPLE = 1 << 18
"""Values of which magnitudes are taken, spread evenly; all are looked at for infinities."""


class PlainStatistics:
    """Of a tensor of BF16 or F32 values. `head`: its first values as stored, at most `keep` of them."""

    def __init__(self, dtype: str, count: int, keep: int) -> None:
        self.dtype = dtype
        self.count = count
        self.not_finite = 0
        self.negative = 0
        self.first_bad: int | None = None
        self.too_large = 0
        self.first_large: int | None = None
        self.all_zero = True
        self._stored = np.dtype("<f4" if dtype == "F32" else "<u2")
        self._keep = keep
        self._head: list[np.ndarray] = []
        self._kept = 0
        self.every = stride(count, PLAIN_SAMPLE)
        self._keys = np.zeros(KEYS, np.int64)
        self._half_keys = np.zeros(KEYS, np.int64)
        self._reached: dict[bool, np.ndarray] = {}

    @property
    def width(self) -> int:
        return self._stored.itemsize

    def take(self, offset: int, data: np.ndarray) -> None:
        stored = data.view(self._stored)
        first = offset // self.width
        if self.all_zero:
            self.all_zero = not (stored if self.dtype == "F32" else stored & 0x7FFF).any()
        if self.dtype == "F32" or not all_below(stored, BF16_LARGEST_WEIGHT):
            every = stored if self.dtype == "F32" else from_bf16(stored)
            bad = ~np.isfinite(every)
            large = (np.abs(every) > LARGEST_WEIGHT) & ~bad
            if large.any():
                self.too_large += int(np.count_nonzero(large))
                self.first_large = first + int(np.argmax(large)) if self.first_large is None else self.first_large
            if bad.any():
                self.not_finite += int(np.count_nonzero(bad))
                self.first_bad = first + int(np.argmax(bad)) if self.first_bad is None else self.first_bad
        if self._kept < self._keep:
            self._head.append(stored[: self._keep - self._kept].copy())
            self._kept += len(self._head[-1])
        some = stored[-first % self.every :: self.every]
        values = some if self.dtype == "F32" else from_bf16(some)
        self.negative += int(np.count_nonzero(values < 0))
        self._keys += magnitude_counts(np.ascontiguousarray(values))
        if self.dtype == "BF16":
            self._half_keys += magnitude_counts(some.view(np.float16).astype(np.float32))

    @property
    def head(self) -> np.ndarray:
        return np.concatenate(self._head) if self._head else np.empty(0, self._stored)

    def magnitude(self, share: float, *, half: bool = False) -> float:
        """The magnitude below which a share of the values lies, to an eighth of an octave; of the half-float reading
        of the same bits where asked for. To be asked once all bytes were taken."""
        if half not in self._reached:
            self._reached[half] = np.cumsum(self._half_keys if half else self._keys)
        return key_value(quantile_bin(self._reached[half], share))

    def magnitudes(self) -> Histogram:
        return octaves(self._keys)


def plain_figures(statistics: PlainStatistics) -> dict[str, Any]:
    """As the report shows them."""
    shares = {"p01": 0.01, "median": 0.5, "p99": 0.99}
    return {
        "values": statistics.count,
        "not_finite": statistics.not_finite,
        "negative": statistics.negative,
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
