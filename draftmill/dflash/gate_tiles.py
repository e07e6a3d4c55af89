"""A sample of every tile, taken while it passes by: 128 of its codes, and the factors of 32 of its 256 groups.

Damage of a part of a tensor shows in single tiles long before it moves a median of the whole. What the sample finds
odd is decoded whole by whoever asks (`gate_packed`), so the sample decides nothing by itself.
"""

from dataclasses import dataclass

import numpy as np

from draftmill.q4nx import q4_1, q4_k
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.tiles import COLUMNS, GROUPS, ROWS, from_bf16

SAMPLED_COLUMNS = 8
SAMPLED_CODES = SAMPLED_COLUMNS * 16
EVERY_GROUP = 8
"""One group in so many gives its factors: rows 0, 8, 16 and 24 of each of the eight groups of columns."""

_WORD = 8  # bytes of 16 codes, which are half a column of a tile
_ONES = np.uint64(0x1111111111111111)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@dataclass(frozen=True)
class SampledCodes:
    """Of each tile. repeats: sampled columns whose half equals that of the next column, which those of weights do not.
    zeros: how many of the 128 codes are zero. prints: a number that tells tiles apart."""

    repeats: np.ndarray
    zeros: np.ndarray
    prints: np.ndarray


class TileSampler:
    """Takes samples of the tiles of one matrix; columns of padding give none."""

    def __init__(self, encoding: Encoding) -> None:
        own = encoding.columns - COLUMNS * (encoding.tile_columns - 1)
        columns = np.arange(SAMPLED_COLUMNS) * max(0, own - 2) // (SAMPLED_COLUMNS - 1)
        half = np.arange(SAMPLED_COLUMNS) % 2
        self._first = encoding.kind == Kind.Q4_1
        if self._first:
            self._words, self._step = q4_1.MINIMUMS.stop // _WORD + COLUMNS * half + columns, 1
        else:
            self._words, self._step = q4_k.MINIMUMS.stop // _WORD + 2 * columns + half, 2
        # Odd, so that no bit of a word is lost.
        self._weights = np.random.default_rng(0).integers(0, 1 << 63, SAMPLED_COLUMNS, np.uint64) * 2 + 1
        self._rows = np.arange(0, ROWS, EVERY_GROUP)

    def codes(self, chunks: np.ndarray) -> SampledCodes:
        words = chunks.view("<u8")
        taken = words[:, self._words]
        repeats = (taken == words[:, self._words + self._step]).view(np.uint8) @ np.ones(SAMPLED_COLUMNS, np.uint8)
        found = taken | taken >> 1
        found = ((found | found >> 2) & _ONES).sum(1)  # in each of 16 lanes, codes that are not zero
        found = (found & _NIBBLES) + (found >> 4 & _NIBBLES)
        zeros = SAMPLED_CODES - (found * _BYTES >> np.uint64(56)).astype(np.int64)
        return SampledCodes(repeats, zeros, taken @ self._weights)

    def groups(self, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scales and minimums, float32 [tiles, 8 groups, 4 rows]."""
        shape = (len(chunks), GROUPS, len(self._rows))
        if self._first:
            planes = (chunks[:, part].view("<u2")[:, ::EVERY_GROUP] for part in (q4_1.SCALES, q4_1.MINIMUMS))
            scales, minimums = (from_bf16(plane) for plane in planes)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                scales, minimums = (
                    (
                        chunks[:, part][:, ::EVERY_GROUP].reshape(shape)
                        * from_bf16(chunks[:, row].view("<u2"))[:, None, ::EVERY_GROUP]
                    )
                    for part, row in ((q4_k.SCALES, q4_k.ROW_SCALES), (q4_k.MINIMUMS, q4_k.ROW_MINIMUMS))
                )
        return scales.reshape(shape), minimums.reshape(shape)
