"""A sample of every tile, taken while it passes by: 128 of its codes, and the factors of 16 of its 256 groups.

Damage of a part of a tensor shows in single tiles long before it moves a median of the whole. What the sample finds
odd is decoded whole by whoever asks (`gate_packed`), so the sample decides nothing by itself.
"""

from dataclasses import dataclass

import numpy as np

from draftmill.q4nx import q4_1, q4_k
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.tiles import COLUMNS, GROUPS, ROWS, from_bf16

PAIRS = 4
"""Places in a tile where the codes of two neighbouring columns are taken: few, since each costs a line of cache."""
SAMPLED_CODES = PAIRS * 2 * 16
EVERY_GROUP = 16
"""One group in so many gives its factors: rows 0 and 16 of each of the eight groups of columns."""
SAMPLED_GROUPS = GROUPS * ROWS // EVERY_GROUP

_WORD = 8  # bytes of 16 codes, which are half a column of a tile
_FIRST, _STRIDE = 60, 129
"""The first word taken, and words from one to the next: odd, so that both halves of the rows are met in Q4_K too."""
_ONES = np.uint64(0x1111111111111111)
_PAIR, _WORDS = np.ones(PAIRS, np.uint8), np.ones(2 * PAIRS, np.uint64)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@dataclass(frozen=True)
class SampledCodes:
    """Of each tile. repeats: pairs of neighbouring columns whose codes are the same, as those of weights never are.
    zeros: how many of the 128 codes are zero. prints: a number that tells tiles apart."""

    repeats: np.ndarray
    zeros: np.ndarray
    prints: np.ndarray


class TileSampler:
    """Takes samples of the tiles of one matrix; columns of padding give none."""

    def __init__(self, encoding: Encoding) -> None:
        self._first = encoding.kind == Kind.Q4_1
        begin = (q4_1.MINIMUMS if self._first else q4_k.MINIMUMS).stop // _WORD
        step = 1 if self._first else 2
        own = encoding.columns - COLUMNS * (encoding.tile_columns - 1)
        self._words: tuple[slice, slice] | tuple[np.ndarray, np.ndarray]
        if own == COLUMNS:
            last = begin + _FIRST + _STRIDE * PAIRS
            self._words = slice(begin + _FIRST, last, _STRIDE), slice(begin + _FIRST + step, last + step, _STRIDE)
        else:
            columns = np.arange(PAIRS) * max(0, own - 2) // (PAIRS - 1)
            half = np.arange(PAIRS) % 2
            words = begin + (COLUMNS * half + columns if self._first else 2 * columns + half)
            self._words = words, words + step
        # Odd, so that no bit of a word is lost.
        self._weights = np.random.default_rng(0).integers(0, 1 << 63, 2 * PAIRS, np.uint64) * 2 + 1

    def codes(self, chunks: np.ndarray) -> SampledCodes:
        words = chunks.view("<u8")
        taken = np.concatenate([words[:, each] for each in self._words], axis=1)
        repeats = (taken[:, :PAIRS] == taken[:, PAIRS:]).view(np.uint8) @ _PAIR
        found = taken | taken >> 1
        # In each of 16 lanes how many codes are not zero, then all of them together.
        found = ((found | found >> 2) & _ONES) @ _WORDS
        found = (found & _NIBBLES) + (found >> 4 & _NIBBLES)
        zeros = SAMPLED_CODES - (found * _BYTES >> np.uint64(56)).astype(np.int64)
        return SampledCodes(repeats, zeros, taken @ self._weights)

    def groups(self, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scales and minimums, float32 [tiles, 8 groups, 2 rows]."""
        shape = (len(chunks), GROUPS, ROWS // EVERY_GROUP)
        if self._first:
            planes = (chunks[:, part].view("<u2")[:, ::EVERY_GROUP] for part in (q4_1.SCALES, q4_1.MINIMUMS))
            scales, minimums = (from_bf16(plane).reshape(shape) for plane in planes)
            return scales, minimums
        factors = []
        with np.errstate(invalid="ignore", over="ignore"):
            for bytes_, rows in ((q4_k.SCALES, q4_k.ROW_SCALES), (q4_k.MINIMUMS, q4_k.ROW_MINIMUMS)):
                row = from_bf16(chunks[:, rows].view("<u2")[:, ::EVERY_GROUP])
                factors.append((chunks[:, bytes_][:, ::EVERY_GROUP] * np.tile(row, GROUPS)).reshape(shape))
        return factors[0], factors[1]
