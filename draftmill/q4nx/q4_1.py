"""q4_1 chunks of 5120 bytes: weight = code x scale + minimum.

Layout (q4nx.md, section 3.1), i = 32 g + r: bf16 scales at 2 i; bf16 minimums at 512 + 2 i; codes at
1024 + 2048 (r // 16) + 8 c + (r mod 16) // 2, even row in the low half.
"""

import numpy as np

from draftmill.q4nx.fitting import bf16_lines, grouped, nearest_codes
from draftmill.q4nx.tiles import (
    COLUMNS,
    ROWS,
    TileCodec,
    Workspace,
    bf16_plane,
    by_group,
    by_row,
    nibble_rows,
    packed_nibbles,
    to_bf16,
)

CHUNK_BYTES = 5120
_MINIMUMS, _CODES = 512, 1024
SCALES, MINIMUMS = slice(0, _MINIMUMS), slice(_MINIMUMS, _CODES)
"""Bytes of a chunk: the planes of bf16 factors, for a look at their bits."""


def groups(chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minimums, float32 [..., 32, 8]."""
    return by_row(bf16_plane(chunks, 0, _MINIMUMS)), by_row(bf16_plane(chunks, _MINIMUMS, _CODES))


def codes(chunks: np.ndarray, work: Workspace) -> np.ndarray:
    """Codes 0..15, uint8 [..., 32, 256]."""
    halves = nibble_rows(chunks[..., _CODES:].reshape(*chunks.shape[:-1], 2, COLUMNS, 8), work)
    return halves.reshape(*chunks.shape[:-1], ROWS, COLUMNS)


def pack(scales: np.ndarray, minimums: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """bf16 bits uint16 [..., 32, 8] twice and codes uint8 [..., 32, 256] -> chunks uint8 [..., 5120]."""
    lead = codes.shape[:-2]
    chunks = np.empty((*lead, CHUNK_BYTES), np.uint8)
    chunks[..., :_MINIMUMS].view("<u2")[...] = by_group(scales)
    chunks[..., _MINIMUMS:_CODES].view("<u2")[...] = by_group(minimums)
    chunks[..., _CODES:] = packed_nibbles(codes.reshape(*lead, 2, 16, COLUMNS)).reshape(*lead, -1)
    return chunks


def row_codes(chunks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Codes 0..15 of one row of each chunk, uint8 [m, 256]."""
    halves = chunks[:, _CODES:].reshape(len(chunks), 2, COLUMNS, 8)
    packed = halves[np.arange(len(chunks)), rows // 16, :, rows % 16 // 2]
    return packed >> (4 * (rows % 2)).astype(np.uint8)[:, None] & 15


def encode(values: np.ndarray) -> np.ndarray:
    """Quantises; see `draftmill.q4nx.fitting` for how scale and minimum are found."""
    x = grouped(values)
    scales, minimums = bf16_lines(x)
    found = nearest_codes(x, scales, minimums).astype(np.uint8).reshape(values.shape)
    return pack(to_bf16(scales), to_bf16(minimums), found)


CODEC = TileCodec(CHUNK_BYTES, codes, row_codes, groups, encode)
