"""Distributions as counts in bins: of magnitudes by the upper bits of float32, and what is read off them."""

import numpy as np

from draftmill.dflash.gate_result import Histogram

BF16_INFINITE = 0x7F80
LARGEST_WEIGHT, BF16_LARGEST_WEIGHT = 2.0**16, 0x4780
"""A weight or gain above it is damage: those of real models stay below a hundred, and half floats end there."""
KEY_SHIFT, KEYS, OCTAVE = 20, 2048, 8
"""float32 bits shifted to sign, exponent and 3 bits of mantissa: 8 bins an octave."""
_FINITE_KEYS = 255 << 3
_LARGEST = float(np.finfo(np.float32).max)
_SIGN = 0x8000


def stride(count: int, wanted: int) -> int:
    """The step that takes about `wanted` of `count`, spread evenly."""
    return max(1, -(-count // wanted))


def all_below(bits: np.ndarray, limit: int) -> bool:
    """Whether the magnitudes of bfloat16 bits (uint16) all lie below those of `limit`, without a copy of them."""
    return int(bits.max()) < limit | _SIGN and int(bits.view(np.int16).max()) < limit


def magnitude_counts(values: np.ndarray) -> np.ndarray:
    """int64 [KEYS] of contiguous float32 values, their signs left out."""
    return np.bincount((values.reshape(-1).view(np.uint32) & 0x7FFFFFFF) >> KEY_SHIFT, minlength=KEYS)


def quantile_bin(reached: np.ndarray, share: float) -> int:
    """reached: cumulated counts of bins."""
    return int(np.searchsorted(reached, max(1, share * int(reached[-1]))))


def _bounds(keys: list[int]) -> list[float]:
    """The smallest magnitudes of bins, as JSON can carry them."""
    values = np.array([min(key, _FINITE_KEYS) << KEY_SHIFT for key in keys], np.uint32).view(np.float32).tolist()
    return [min(value, _LARGEST) for value in values]


def key_value(key: int) -> float:
    """The middle of a bin of magnitudes, rounded as reports show it; the bin of zero has zero."""
    if key == 0:
        return 0.0
    low, high = _bounds([key, key + 1])
    return float(f"{low + (high - low) / 2:.4g}")


def octaves(keys: np.ndarray) -> Histogram:
    """Bins of half an octave where values are, at most 64; smaller ones are in the first, NaN and infinity in none."""
    halves = keys[:_FINITE_KEYS].reshape(-1, 4).sum(1)
    there = np.flatnonzero(halves)
    if not len(there):
        return Histogram((0.0, 1.0), (0,))
    high = int(there[-1])
    low = max(int(there[0]), high - 63)
    counts = halves[low : high + 1].copy()
    counts[0] += halves[:low].sum()
    edges = _bounds([key * 4 for key in range(low, high + 2)])
    return Histogram(tuple(float(f"{edge:.4g}") for edge in edges), tuple(counts.tolist()))
