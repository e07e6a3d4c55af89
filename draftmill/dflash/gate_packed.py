"""What is measured of packed tiles while they pass by: scales, minimums, codes, and how they would read as half floats.

Every factor is looked at (finite, positive, of a size with its neighbour), and a sample of every tile. Tiles in which
either is odd are decoded whole. Distributions, the tensor's medians and the half-float reading are taken of a part of
the tiles where a tensor has many.
"""

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np

from draftmill.dflash.gate_bins import (
    BF16_INFINITE,
    KEY_SHIFT,
    KEYS,
    key_value,
    magnitude_counts,
    octaves,
    quantile_bin,
    stride,
)
from draftmill.dflash.gate_result import Histogram
from draftmill.dflash.gate_tile_faults import LARGEST_RATIO, TILE_RATIO_BAND, ZERO_CODES, find_faults
from draftmill.dflash.gate_tiles import SAMPLED_CODES, SAMPLED_GROUPS, TileSampler
from draftmill.q4nx import q4_1, q4_k
from draftmill.q4nx.encodings import CODECS, Encoding, Kind
from draftmill.q4nx.fitting import FLAT_SCALE
from draftmill.q4nx.tiles import COLUMNS, GROUP, GROUPS, ROWS, Workspace

SAMPLED_TILES = 64
"""Tiles of which distributions are taken, spread evenly; a tensor with fewer gives all of its own."""
KEPT_TILES = 16
"""Tiles that are looked at whole: read as half floats, and for the tells of older forms."""

_ABOVE_100, _HALF_INFINITE = 0x5640, 0x7C00  # 100 and infinity as half-float bits
_SOUND_Q4_1, _SOUND_Q4_K = 0x4500, 0x4100
"""bf16 bits of 2^11 and 2^3: with scale and minimum below them (in Q4_K times a byte) 15 x scale + minimum stays
below `LARGEST_WEIGHT`."""
_FLAT = int(np.float32(FLAT_SCALE).view(np.uint32)) >> 16  # as bf16 bits
_STEEP = int(np.log2(LARGEST_RATIO)) << 7
"""Difference of bf16 bits, whose upper ones are a logarithm, from which on two factors are that far apart."""
_EACH = np.ones(SAMPLED_GROUPS, np.uint8)
_RATIO_BINS, _RATIO_REACH = 128, 32  # bins a unit, units on either side of zero


class PackedStatistics:
    """Of a packed tensor, fed with whole tiles in order. Groups that lie in column padding only count for `finite`.

    faults: how often each of `find_faults` was met; first_bad: the row and column where first. prints: of each tile,
    0 where its sample repeats itself. dead_tiles: those without any weight. work: buffers, which several may share.
    """

    def __init__(self, encoding: Encoding, work: Workspace | None = None) -> None:
        self.encoding = encoding
        self.tiles = encoding.tile_rows * encoding.tile_columns
        self.groups = self.tiles * GROUPS * ROWS
        self.faults: Counter[str] = Counter()
        self.first_bad: dict[str, list[int]] = {}
        self.largest_scale = 0.0
        self._largest_bits = 0
        self.minimum_seen = False
        self.prints = np.zeros(self.tiles, np.uint64)
        self.dead_tiles = np.zeros(self.tiles, bool)
        self.sampled_groups = self.sampled_dead = 0
        self.half_above = self.half_not_finite = self.half_values = 0
        self.kept: list[np.ndarray] = []
        self._codec = CODECS[encoding.kind]
        self._sampler = TileSampler(encoding)
        self._work = work or Workspace()
        self._distributed: list[np.ndarray] = []
        self._scale_keys = np.zeros(KEYS, np.int64)
        self._ratio_bins = np.zeros(2 * _RATIO_REACH * _RATIO_BINS, np.int64)
        self._every = stride(self.tiles, SAMPLED_TILES)
        self._every_kept = stride(self.tiles, KEPT_TILES)
        own = encoding.columns - COLUMNS * (encoding.tile_columns - 1)
        self._padded = np.arange(GROUPS) >= -(-own // GROUP)
        self._mixed = np.arange(GROUPS) >= own // GROUP

    @property
    def sampled(self) -> int:
        """One tile in how many gave the distributions."""
        return self._every

    def take(self, offset: int, data: np.ndarray) -> None:
        first = offset // self._codec.chunk_bytes
        chunks = data.reshape(-1, self._codec.chunk_bytes)
        factors, odd = self._look(first, chunks), self._sample(first, chunks)
        odd = odd if factors is None else odd | factors
        if odd.any():
            self._judge(first + np.flatnonzero(odd), chunks[odd])
        if len(some := chunks[-first % self._every :: self._every]):
            self._distributed.append(some.copy())
        kept = chunks[-first % self._every_kept :: self._every_kept].copy()
        if len(kept):
            bits = kept.view("<u2") & np.uint16(0x7FFF)
            not_finite = int(np.count_nonzero(bits >= _HALF_INFINITE))
            self.half_not_finite += not_finite
            self.half_above += int(np.count_nonzero(bits > _ABOVE_100)) - not_finite
            self.half_values += bits.size
            self.kept.append(kept)
        if first + len(chunks) == self.tiles:
            self._distribute(np.concatenate(self._distributed))

    def _look(self, first: int, chunks: np.ndarray) -> np.ndarray | None:
        """At the bits of all factors. Which tiles have one that is not plainly sound, bool [t]; None where none has.
        All tiles at once first: of sound ones that is all that is done."""
        if self.encoding.kind == Kind.Q4_1:
            scales, minimums = chunks[:, q4_1.SCALES].view("<u2"), chunks[:, q4_1.MINIMUMS].view("<u2")
            limit, small, smaller = _SOUND_Q4_1, None, None
        else:
            scales, minimums = chunks[:, q4_k.ROW_SCALES].view("<u2"), chunks[:, q4_k.ROW_MINIMUMS].view("<u2")
            limit, small, smaller = _SOUND_Q4_K, chunks[:, q4_k.SCALES], chunks[:, q4_k.MINIMUMS]
        sizes = np.bitwise_and(minimums, 0x7FFF, out=self._buffer("sizes", minimums.shape, np.uint16))
        steep = np.subtract(sizes, scales, out=self._buffer("steep", scales.shape, np.uint16)).view(np.int16)
        largest = int(scales.max())
        # Only one of twice the size is worth a closer look: an outlier is one by powers of two.
        if self._largest_bits + 0x80 < largest < BF16_INFINITE:
            self._largest_bits = largest
            self._note_largest(first, chunks, int(scales.max(1).argmax()))
        # The row's own factors stand about 8 to 1: with bytes 8 to 1 a group is near the largest ratio.
        uneven = None if small is None or smaller is None else self._uneven(small, smaller)
        sound = int(scales.min()) > _FLAT and largest < limit and 0 < int(sizes.max()) < limit
        if sound and int(steep.max()) <= _STEEP and (uneven is None or not uneven.any()):
            self.minimum_seen = self.minimum_seen or smaller is None or bool(smaller.any())
            return None
        tops, deepest = scales.max(1), sizes.max(1)
        odd = (scales.min(1) == 0) | (tops >= limit) | (deepest >= limit) | (steep.max(1) > _STEEP)
        if uneven is not None and small is not None and smaller is not None:
            odd |= uneven.any(1) | (small.min(1) == 0)
            deepest = np.minimum(deepest, smaller.max(1))
        self.minimum_seen = self.minimum_seen or bool(deepest.any())
        self.dead_tiles[first : first + len(chunks)] = (tops <= _FLAT) & (deepest == 0)
        return np.asarray(odd, bool)

    def _uneven(self, scales: np.ndarray, minimums: np.ndarray) -> np.ndarray:
        """Bytes of Q4_K: where the scale is zero or the minimum is eight times the scale, bool [t, 256]."""
        eighths = np.right_shift(minimums, 3, out=self._buffer("eighths", minimums.shape, np.uint8))
        return np.greater_equal(eighths, scales, out=self._buffer("uneven", minimums.shape, np.bool_))

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
        return self._work.take(name, shape, dtype)

    def _sample(self, first: int, chunks: np.ndarray) -> np.ndarray:
        """Which tiles have a sample that weights seldom give, bool [t]."""
        own = slice(first, first + len(chunks))
        codes = self._sampler.codes(chunks)
        self.prints[own] = np.where(codes.repeats == 0, codes.prints, 0)
        scales, minimums = self._sampler.groups(chunks)
        with np.errstate(invalid="ignore", over="ignore"):
            below, above = minimums < TILE_RATIO_BAND[0] * scales, minimums > TILE_RATIO_BAND[1] * scales
        if not self._mixed.any() and scales.min() > FLAT_SCALE:
            self.sampled_groups += scales.size
            most: Any = SAMPLED_GROUPS // 2
        else:
            live = scales > FLAT_SCALE
            within = ~self._last(np.arange(first, first + len(chunks)), self._mixed).reshape(-1, GROUPS, 1)
            self.sampled_groups += int(np.count_nonzero(within)) * live.shape[-1]
            self.sampled_dead += int(np.count_nonzero(within & ~live & (minimums == 0)))
            live &= within
            below &= live
            above &= live
            most = _counted(live) // 2
        odd = (codes.repeats > 0) | (codes.zeros > ZERO_CODES * SAMPLED_CODES)
        odd |= (_counted(below) > most) | (_counted(above) > most)
        return odd & ~self.dead_tiles[own]

    def _judge(self, tiles: np.ndarray, chunks: np.ndarray) -> None:
        padded, mixed = (self._last(tiles, groups) for groups in (self._padded, self._mixed))
        for name, bad in find_faults(self.encoding.kind, chunks, padded, mixed).items():
            if bad.any():
                self.faults[name] += int(np.count_nonzero(bad))
                self._note(name, bad, tiles)

    def _note_largest(self, first: int, chunks: np.ndarray, tile: int) -> None:
        """The largest scale of the tile that has the largest factor so far."""
        scales, _ = self._groups(chunks[tile : tile + 1])
        tiles = np.array([first + tile])
        scales = np.where(self._last(tiles, self._padded), 0, scales)
        if scales.max() > self.largest_scale:
            self.largest_scale = float(scales.max())
            self.first_bad.pop("largest_scale", None)
            self._note("largest_scale", scales == scales.max(), tiles)

    def _note(self, what: str, bad: np.ndarray, tiles: np.ndarray) -> None:
        if what not in self.first_bad:
            at, row, group = np.argwhere(bad)[0].tolist()
            down, right = divmod(int(tiles[at]), self.encoding.tile_columns)
            self.first_bad[what] = [down * ROWS + row, right * COLUMNS + group * GROUP]

    def _groups(self, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scales, minimums = self._codec.groups(chunks)
        assert minimums is not None  # noqa: S101 - of Q8 only, which no draft is stored in
        return scales, minimums

    def _last(self, tiles: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Groups of the last column of tiles, bool [8] -> bool [tiles, 1, 8]."""
        last = tiles % self.encoding.tile_columns == self.encoding.tile_columns - 1
        return (last[:, None] & groups)[:, None, :]

    def _distribute(self, chunks: np.ndarray) -> None:
        self._distributed.clear()
        scales, minimums = self._groups(chunks)
        if self._padded.any():
            within = np.broadcast_to(~self._last(np.arange(0, self.tiles, self._every), self._padded), scales.shape)
            scales, minimums = scales[within], minimums[within]
        self._scale_keys += magnitude_counts(scales)
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

    @property
    def all_zero(self) -> bool:
        """Whether every group is zero: both factors, or the minimum under the scale that encoders give flat groups."""
        bad = any(count for name, count in self.faults.items() if name != "dead")
        return not (self.minimum_seen or bad) and self.largest_scale <= FLAT_SCALE

    @property
    def dead_share(self) -> float:
        """Of the groups of the sample, those without weights."""
        return self.sampled_dead / max(1, self.sampled_groups)

    @property
    def dead_columns(self) -> int:
        """Columns of tiles in which no row has any weight."""
        return int(self.dead_tiles.reshape(-1, self.encoding.tile_columns).all(0).sum())

    @cached_property
    def scale_median(self) -> float:
        """Of scales that are neither zero nor a flat group's, to an eighth of an octave; 0 when there are none. To be
        asked, as the ratio's, once all tiles were taken."""
        keys = self._scale_keys.copy()
        keys[0] = keys[int(np.float32(FLAT_SCALE).view(np.uint32)) >> KEY_SHIFT] = 0
        reached = np.cumsum(keys)
        return key_value(quantile_bin(reached, 0.5)) if reached[-1] else 0.0

    @cached_property
    def ratio_median(self) -> float:
        """To 1/128."""
        return (quantile_bin(np.cumsum(self._ratio_bins), 0.5) + 0.5) / _RATIO_BINS - _RATIO_REACH

    def scales(self) -> Histogram:
        return octaves(self._scale_keys)

    def ratios(self) -> Histogram:
        """In quarters from -16 to 4."""
        width = _RATIO_BINS // 4
        counts = self._ratio_bins.reshape(-1, width).sum(1)
        low, high = (_RATIO_REACH - 16) * 4, (_RATIO_REACH + 4) * 4
        inner = counts[low:high].copy()
        inner[0] += counts[:low].sum()
        inner[-1] += counts[high:].sum()
        return Histogram(tuple((np.arange(low, high + 1) / 4 - _RATIO_REACH).tolist()), tuple(inner.tolist()))


def _counted(groups: np.ndarray) -> np.ndarray:
    """bool [t, 8, 2] -> how many of each tile, uint8."""
    return groups.reshape(len(groups), -1).view(np.uint8) @ _EACH


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
        "dead_groups": statistics.faults["dead"],
        "dead_share": round(statistics.dead_share, 4),
        "half_float_above_100": round(above, 4),
        "half_float_not_finite": round(not_finite, 4),
    }
