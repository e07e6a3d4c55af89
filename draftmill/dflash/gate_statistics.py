"""What is measured of a tensor while its bytes pass by: factors of packed tiles, magnitudes of plain values.

Every factor is looked at (finite, positive); distributions, medians and the half-float reading are taken of a part of
the tiles where a tensor has many. Codes are not decoded: nothing about them can be wrong by itself.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from draftmill.dflash.gate_result import Histogram
from draftmill.q4nx.encodings import CODECS, Encoding, Kind
from draftmill.q4nx.tiles import COLUMNS, GROUP, GROUPS, ROWS, from_bf16

SAMPLED_TILES = 128
"""Tiles of which distributions are taken, spread evenly; a tensor with fewer gives all of its own."""
KEPT_TILES = 16
"""Tiles that are looked at whole: read as half floats, and for the tells of older forms."""
PLAIN_SAMPLE = 1 << 18

_ABOVE_100, _HALF_INFINITE = 0x5640, 0x7C00  # 100 and infinity as half-float bits
_BF16_INFINITE, _SIGN = 0x7F80, 0x8000
_Q4_1_SCALES, _Q4_1_MINIMUMS = slice(0, 512), slice(512, 1024)
_Q4_K_SCALES, _Q4_K_S, _Q4_K_M = slice(0, 256), slice(4608, 4672), slice(4672, 4736)
_KEY_SHIFT, _KEYS = 20, 2048  # float32 bits to sign, exponent and 3 bits of mantissa: 8 bins an octave
_FINITE_KEYS = 255 << 3
_LARGEST = float(np.finfo(np.float32).max)
_RATIO_BINS, _RATIO_REACH = 128, 32  # bins a unit, units on either side of zero


def _all_below(bits: np.ndarray, limit: int) -> bool:
    """Whether the magnitudes of bfloat16 bits (uint16) all lie below those of `limit`, without a copy of them."""
    return int(bits.max()) < limit | _SIGN and int(bits.view(np.int16).max()) < limit


def _stride(count: int, wanted: int) -> int:
    return max(1, -(-count // wanted))


class PackedStatistics:
    """Of a packed tensor, fed with whole tiles in order. Groups that lie in column padding only count for `finite`."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.tiles = encoding.tile_rows * encoding.tile_columns
        self.groups = self.tiles * GROUPS * ROWS
        self.scales_not_finite = self.scales_not_positive = self.minimums_not_finite = 0
        self.dead = 0
        self.first_bad: dict[str, list[int]] = {}
        self.minimum_seen = False
        self.half_above = self.half_not_finite = self.half_values = 0
        self.kept: list[np.ndarray] = []
        self._codec = CODECS[encoding.kind]
        self._scale_keys = np.zeros(_KEYS, np.int64)
        self._ratio_bins = np.zeros(2 * _RATIO_REACH * _RATIO_BINS, np.int64)
        self._every = _stride(self.tiles, SAMPLED_TILES)
        self._every_kept = _stride(self.tiles, KEPT_TILES)
        full = -(-(encoding.columns - COLUMNS * (encoding.tile_columns - 1)) // GROUP)
        self._padded = np.arange(GROUPS) >= full

    @property
    def sampled(self) -> int:
        """One tile in how many gave the distributions."""
        return self._every

    def take(self, offset: int, data: np.ndarray) -> None:
        first = offset // self._codec.chunk_bytes
        chunks = data.reshape(-1, self._codec.chunk_bytes)
        self._look(first, chunks)
        self._distribute(first, chunks[-first % self._every :: self._every], -first % self._every)
        kept = chunks[-first % self._every_kept :: self._every_kept].copy()
        if len(kept):
            bits = kept.view("<u2") & np.uint16(0x7FFF)
            not_finite = int(np.count_nonzero(bits >= _HALF_INFINITE))
            self.half_not_finite += not_finite
            self.half_above += int(np.count_nonzero(bits > _ABOVE_100)) - not_finite
            self.half_values += bits.size
            self.kept.append(kept)

    def _look(self, first: int, chunks: np.ndarray) -> None:
        """At all factors, by the extremes of their bits; only what is not plainly sound is decoded."""
        if self.encoding.kind == Kind.Q4_1:
            scales, minimums = chunks[:, _Q4_1_SCALES].view("<u2"), chunks[:, _Q4_1_MINIMUMS].view("<u2")
            limit, sound = _BF16_INFINITE, True
        else:
            scales, minimums = chunks[:, _Q4_K_S].view("<u2"), chunks[:, _Q4_K_M].view("<u2")
            # Below 2^119 a product with a byte stays finite.
            limit, sound = 0x7B00, bool(chunks[:, _Q4_K_SCALES].min())
        if not self.minimum_seen:
            self.minimum_seen = bool((minimums & 0x7FFF).any())
        if not (sound and int(scales.min()) > 0 and int(scales.max()) < limit and _all_below(minimums, limit)):
            self._look_closer(first, chunks)

    def _look_closer(self, first: int, chunks: np.ndarray) -> None:
        scales, minimums = self._groups(chunks)
        padded = self._in_padding(np.arange(first, first + len(chunks)))
        self._count("scales_not_finite", ~np.isfinite(scales), first)
        self._count("minimums_not_finite", ~np.isfinite(minimums), first)
        zero = ~(scales > 0) & np.isfinite(scales) & ~padded
        dead = zero & (scales == 0) & (minimums == 0)
        self.dead += int(np.count_nonzero(dead))
        self._count("scales_not_positive", zero & ~dead, first)
        self._note("dead", dead, first)

    def _count(self, what: str, bad: np.ndarray, first: int) -> None:
        setattr(self, what, getattr(self, what) + int(np.count_nonzero(bad)))
        self._note(what, bad, first)

    def _note(self, what: str, bad: np.ndarray, first: int) -> None:
        if what not in self.first_bad and bad.any():
            tile, row, group = np.argwhere(bad)[0].tolist()
            across = self.encoding.tile_columns
            down, right = divmod(first + tile, across)
            self.first_bad[what] = [down * ROWS + row, right * COLUMNS + group * GROUP]

    def _groups(self, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scales, minimums = self._codec.groups(chunks)
        assert minimums is not None  # noqa: S101 - of Q8 only, which no draft is stored in
        return scales, minimums

    def _in_padding(self, tiles: np.ndarray) -> np.ndarray:
        """bool [tiles, 1, 8]"""
        last = tiles % self.encoding.tile_columns == self.encoding.tile_columns - 1
        return (last[:, None] & self._padded)[:, None, :]

    def _distribute(self, first: int, chunks: np.ndarray, skipped: int) -> None:
        if not len(chunks):
            return
        scales, minimums = self._groups(chunks)
        if self._padded.any():
            tiles = first + skipped + np.arange(len(chunks)) * self._every
            within = np.broadcast_to(~self._in_padding(tiles), scales.shape)
            scales, minimums = scales[within], minimums[within]
        self._scale_keys += np.bincount((scales.reshape(-1).view(np.uint32) >> _KEY_SHIFT) % _KEYS, minlength=_KEYS)
        with np.errstate(all="ignore"):
            ratios = minimums.reshape(-1) / scales.reshape(-1)
            bins = ratios * np.float32(_RATIO_BINS) + np.float32(_RATIO_REACH * _RATIO_BINS)
        # fmax and fmin take the number where one of the two is none.
        bins = np.fmin(np.fmax(bins, 0), len(self._ratio_bins) - 1).astype(np.intp)
        self._ratio_bins += np.bincount(bins, minlength=len(self._ratio_bins))

    @property
    def half_shares(self) -> tuple[float, float]:
        """Of the bytes read as half floats: the share above 100 in magnitude, and the share that is not finite."""
        return self.half_above / max(1, self.half_values), self.half_not_finite / max(1, self.half_values)

    @property
    def sample(self) -> np.ndarray:
        """The bytes of some tiles, spread evenly, uint8."""
        return np.concatenate(self.kept).reshape(-1) if self.kept else np.empty(0, np.uint8)

    @property
    def all_minimums_zero(self) -> bool:
        return not self.minimum_seen

    @cached_property
    def scale_median(self) -> float:
        """To an eighth of an octave. To be asked, as the ratio's, once all tiles were taken."""
        return _key_value(_quantile_bin(np.cumsum(self._scale_keys), 0.5))

    @cached_property
    def ratio_median(self) -> float:
        """To 1/128."""
        return (_quantile_bin(np.cumsum(self._ratio_bins), 0.5) + 0.5) / _RATIO_BINS - _RATIO_REACH

    def scales(self) -> Histogram:
        return _octaves(self._scale_keys)

    def ratios(self) -> Histogram:
        """In quarters from -16 to 4."""
        width = _RATIO_BINS // 4
        counts = self._ratio_bins.reshape(-1, width).sum(1)
        low, high = (_RATIO_REACH - 16) * 4, (_RATIO_REACH + 4) * 4
        inner = counts[low:high].copy()
        inner[0] += counts[:low].sum()
        inner[-1] += counts[high:].sum()
        return Histogram(tuple((np.arange(low, high + 1) / 4 - _RATIO_REACH).tolist()), tuple(inner.tolist()))


class PlainStatistics:
    """Of a tensor of BF16 or F32 values. `head`: its first values as stored, at most `keep` of them."""

    def __init__(self, dtype: str, count: int, keep: int) -> None:
        self.dtype = dtype
        self.count = count
        self.not_finite = 0
        self.negative = 0
        self.first_bad: int | None = None
        self._stored = np.dtype("<f4" if dtype == "F32" else "<u2")
        self._keep = keep
        self._head: list[np.ndarray] = []
        self._kept = 0
        self.every = _stride(count, PLAIN_SAMPLE)
        self._keys = np.zeros(_KEYS, np.int64)
        self._half_keys = np.zeros(_KEYS, np.int64)
        self._reached: dict[bool, np.ndarray] = {}

    @property
    def width(self) -> int:
        return self._stored.itemsize

    def take(self, offset: int, data: np.ndarray) -> None:
        stored = data.view(self._stored)
        first = offset // self.width
        if self.dtype == "F32" or not _all_below(stored, _BF16_INFINITE):
            bad = ~np.isfinite(stored if self.dtype == "F32" else from_bf16(stored))
            if bad.any():
                self.not_finite += int(np.count_nonzero(bad))
                self.first_bad = first + int(np.argmax(bad)) if self.first_bad is None else self.first_bad
        if self._kept < self._keep:
            self._head.append(stored[: self._keep - self._kept].copy())
            self._kept += len(self._head[-1])
        some = stored[-first % self.every :: self.every]
        values = some if self.dtype == "F32" else from_bf16(some)
        self.negative += int(np.count_nonzero(values < 0))
        bits = np.ascontiguousarray(values).view(np.uint32)
        self._keys += np.bincount((bits & 0x7FFFFFFF) >> _KEY_SHIFT, minlength=_KEYS)
        if self.dtype == "BF16":
            half = some.view(np.float16).astype(np.float32).view(np.uint32)
            self._half_keys += np.bincount((half & 0x7FFFFFFF) >> _KEY_SHIFT, minlength=_KEYS)

    @property
    def head(self) -> np.ndarray:
        return np.concatenate(self._head) if self._head else np.empty(0, self._stored)

    def magnitude(self, share: float, *, half: bool = False) -> float:
        """The magnitude below which a share of the values lies, to an eighth of an octave; of the half-float reading
        of the same bits where asked for. To be asked once all bytes were taken."""
        if half not in self._reached:
            self._reached[half] = np.cumsum(self._half_keys if half else self._keys)
        return _key_value(_quantile_bin(self._reached[half], share))

    def magnitudes(self) -> Histogram:
        return _octaves(self._keys)


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


def packed_figures(statistics: PackedStatistics) -> dict[str, Any]:
    """As the report shows them."""
    above, not_finite = statistics.half_shares
    return {
        "tiles": statistics.tiles,
        "groups": statistics.groups,
        "padded_columns": statistics.encoding.padded_columns,
        "scale_median": statistics.scale_median,
        "ratio_median": round(statistics.ratio_median, 3),
        "distribution_of_one_tile_in": statistics.sampled,
        "dead_groups": statistics.dead,
        "half_float_above_100": round(above, 4),
        "half_float_not_finite": round(not_finite, 4),
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


def _quantile_bin(reached: np.ndarray, share: float) -> int:
    """reached: cumulated counts of bins."""
    return int(np.searchsorted(reached, max(1, share * int(reached[-1]))))


def _bounds(keys: list[int]) -> list[float]:
    """The smallest magnitudes of bins, as JSON can carry them."""
    values = np.array([min(key, _FINITE_KEYS) << _KEY_SHIFT for key in keys], np.uint32).view(np.float32).tolist()
    return [min(value, _LARGEST) for value in values]


def _key_value(key: int) -> float:
    """The middle of a bin of magnitudes, rounded as reports show it."""
    low, high = _bounds([key, key + 1])
    return float(f"{low + (high - low) / 2:.4g}")


def _octaves(keys: np.ndarray) -> Histogram:
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
