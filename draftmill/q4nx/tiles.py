"""The tile that all packed encodings share, and what a codec of one can do.

A tile is 32 rows x 256 columns; its columns fall into 8 groups of 32. r is the row in the tile, c the column and
g = c // 32. Arrays of per-group values have the file's order [..., 8 groups, 32 rows] until `by_row` turns them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ROWS = 32
COLUMNS = 256
GROUP = 32
GROUPS = COLUMNS // GROUP


class Workspace:
    """Buffers used again from batch to batch: fresh pages would cost as much as the decoding itself."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
        """An array whose content is whatever was left in it; taking `name` again takes the same memory."""
        size = math.prod(shape)
        if name not in self._held or self._held[name].size < size:
            self._held[name] = np.empty(size, dtype)
        return self._held[name][:size].reshape(shape)


@dataclass(frozen=True)
class TileCodec:
    """One packed encoding: weight = code x scale, + minimum where it has one (`apply_groups` does the arithmetic).

    codes(chunks, work): chunks uint8 [..., chunk_bytes] -> integers [..., 32, 256], which live in `work`.
    row_codes(chunks, rows): chunks [m, chunk_bytes] and the row in each tile, int [m] -> integers [m, 256].
    groups(chunks): scale and minimum (or None) as the arithmetic uses them, float32 [..., 32, 8] each.
    encode(values): finite float32 [..., 32, 256] -> chunks uint8 [..., chunk_bytes].
    """

    chunk_bytes: int
    codes: Callable[[np.ndarray, Workspace], np.ndarray]
    row_codes: Callable[[np.ndarray, np.ndarray], np.ndarray]
    groups: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]]
    encode: Callable[[np.ndarray], np.ndarray]


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 bits (uint16): the bits, shifted up by 16."""
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """uint16 bits of the bfloat16 nearest to finite float32 values, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def bf16_plane(chunks: np.ndarray, begin: int, end: int) -> np.ndarray:
    """The bfloat16 values in bytes [begin, end) of each chunk, as float32 [..., (end - begin) / 2]."""
    return from_bf16(chunks[..., begin:end].view("<u2"))


def by_row(plane: np.ndarray) -> np.ndarray:
    """[..., 256] in the file's group-major order -> [..., 32 rows, 8 groups], contiguous."""
    return np.ascontiguousarray(plane.reshape(*plane.shape[:-1], GROUPS, ROWS).swapaxes(-1, -2))


def by_group(values: np.ndarray) -> np.ndarray:
    """The inverse of `by_row`: [..., 32 rows, 8 groups] -> [..., 256]."""
    return values.swapaxes(-1, -2).reshape(*values.shape[:-2], GROUPS * ROWS)


def nibble_rows(packed: np.ndarray, work: Workspace) -> np.ndarray:
    """Bytes [..., 256 columns, b] of two rows each, low half first -> codes uint8 [..., 2 b rows, 256 columns]."""
    lead, pairs = packed.shape[:-2], packed.shape[-1]
    turned = work.take("turned", (*lead, pairs, COLUMNS), np.uint8)
    codes = work.take("codes", (*lead, pairs, 2, COLUMNS), np.uint8)
    np.copyto(turned, packed.swapaxes(-1, -2))
    np.bitwise_and(turned, 15, out=codes[..., 0, :])
    np.right_shift(turned, 4, out=codes[..., 1, :])
    return codes.reshape(*lead, 2 * pairs, COLUMNS)


def packed_nibbles(codes: np.ndarray) -> np.ndarray:
    """The inverse of `nibble_rows`: codes uint8 [..., rows, 256] -> bytes [..., 256, rows / 2]."""
    turned = codes.swapaxes(-1, -2)
    return turned[..., 0::2] | turned[..., 1::2] << 4


def apply_groups(codes: np.ndarray, scales: np.ndarray, minimums: np.ndarray | None, out: np.ndarray) -> None:
    """out = code x scale, rounded to float32, then + minimum, rounded: the order that fixes the last bit.

    codes integer [..., 32, 256], scales and minimums float32 [..., 32, 8], out float32 [..., 32, 256].
    """
    grouped = out.reshape(*out.shape[:-1], GROUPS, GROUP)
    np.copyto(grouped, codes.reshape(grouped.shape))
    np.multiply(grouped, scales[..., None], out=grouped)
    if minimums is not None:
        np.add(grouped, minimums[..., None], out=grouped)
