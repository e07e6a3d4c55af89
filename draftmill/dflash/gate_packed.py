"""What is measured of packed tiles while they pass by: scales, minimums, and how they would read as half floats.

Every factor is looked at (finite, positive); distributions, medians and the half-float reading are taken of a part of
the tiles where a tensor has many. Codes are not decoded: nothing about them can be wrong by itself.
"""

from functools import cached_property
from typing import Any

import numpy as np

from draftmill.dflash.gate_bins import (
    BF16_INFINITE,
    KEY_SHIFT,
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
from draftmill.q4nx import q4_1, q4_k
from draftmill.q4nx.encodings import CODECS, Encoding, Kind
from draftmill.q4nx.fitting import FLAT_SCALE
from draftmill.q4nx.tiles import COLUMNS, GROUP, GROUPS, ROWS

SAMPLED_TILES = 64
"""Tiles of which distributions are taken, spread evenly; a tensor with fewer gives all of its own."""
KEPT_TILES = 16
"""Tiles that are looked at whole: read as half floats, and for the tells of older forms."""

_ABOVE_100, _HALF_INFINITE = 0x5640, 0x7C00  # 100 and infinity as half-float bits
_SOUND_Q4_1, _SOUND_Q4_K = 0x4500, 0x4100
"""bf16 bits of 2^11 and 2^3: with scale and minimum below them (in Q4_K times a byte) 15 x scale + minimum stays
below `LARGEST_WEIGHT`."""
_RATIO_BINS, _RATIO_REACH = 128, 32  # bins a unit, units on either side of zero


class PackedStatistics:
    """Of a packed tensor, fed with whole tiles in order. Groups that lie in column padding only count for `finite`."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.tiles = encoding.tile_rows * encoding.tile_columns
        self.groups = self.tiles * GROUPS * ROWS
        self.scales_not_finite = self.scales_not_positive = self.minimums_not_finite = 0
        self.dead = 0
        self.too_large = 0
        self.largest_scale = 0.0
        self._largest_bits = 0
        self.first_bad: dict[str, list[int]] = {}
        self.minimum_seen = False
        self.half_above = self.half_not_finite = self.half_values = 0
        self.kept: list[np.ndarray] = []
        self._codec = CODECS[encoding.kind]
        self._scale_keys = np.zeros(KEYS, np.int64)
        self._ratio_bins = np.zeros(2 * _RATIO_REACH * _RATIO_BINS, np.int64)
        self._every = stride(self.tiles, SAMPLED_TILES)
        self._every_kept = stride(self.tiles, KEPT_TILES)
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
            scales, minimums = chunks[:, q4_1.SCALES].view("<u2"), chunks[:, q4_1.MINIMUMS].view("<u2")
            limit, sound = _SOUND_Q4_1, True
        else:
            scales, minimums = chunks[:, q4_k.ROW_SCALES].view("<u2"), chunks[:, q4_k.ROW_MINIMUMS].view("<u2")
            limit, sound = _SOUND_Q4_K, bool(chunks[:, q4_k.SCALES].min())
        if not self.minimum_seen:
            self.minimum_seen = bool((minimums & 0x7FFF).any()) and (
                self.encoding.kind == Kind.Q4_1 or bool(chunks[:, q4_k.MINIMUMS].any())
            )
        largest = int(scales.max())
        if not (sound and int(scales.min()) > 0 and largest < limit and all_below(minimums, limit)):
            self._look_closer(first, chunks)
        # Only one of twice the size is worth a closer look: an outlier is one by powers of two.
        if self._largest_bits + 0x80 < largest < BF16_INFINITE:
            self._largest_bits = largest
            self._note_largest(first, chunks, int(scales.max(1).argmax()))

    def _note_largest(self, first: int, chunks: np.ndarray, tile: int) -> None:
        """The largest scale of the tile that has the largest factor so far."""
        scales, _ = self._groups(chunks[tile : tile + 1])
        scales = np.where(self._in_padding(np.array([first + tile])), 0, scales)
        if scales.max() > self.largest_scale:
            self.largest_scale = float(scales.max())
            self.first_bad.pop("largest_scale", None)
            self._note("largest_scale", scales == scales.max(), first + tile)

    def _look_closer(self, first: int, chunks: np.ndarray) -> None:
        scales, minimums = self._groups(chunks)
        padded = self._in_padding(np.arange(first, first + len(chunks)))
        self._count("scales_not_finite", ~np.isfinite(scales), first)
        self._count("minimums_not_finite", ~np.isfinite(minimums), first)
        with np.errstate(all="ignore"):
            reach = np.fmax(np.abs(minimums), np.abs(np.float32(15) * scales + minimums))
            too_large = (reach > LARGEST_WEIGHT) & np.isfinite(scales) & np.isfinite(minimums) & ~padded
        self._count("too_large", too_large, first)
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
        bad = self.scales_not_finite + self.scales_not_positive + self.minimums_not_finite + self.too_large
        return not (self.minimum_seen or bad) and self.largest_scale <= FLAT_SCALE

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
