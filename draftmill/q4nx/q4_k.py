"""Q4_K chunks of 4736 bytes: weight = (S x scale) x code + (M x min), S and M per row, M stored negated.

Layout (q4nx.md, section 3.3), i = 32 g + r: u8 scales at i; u8 mins at 256 + i; codes at 512 + 16 c + r // 2, even row
in the low half; bf16 S at 4608 + 2 r; bf16 M at 4672 + 2 r.
"""

import numpy as np

from draftmill.q4nx.fitting import grouped, nearest_codes, super_blocks
from draftmill.q4nx.tiles import (
    COLUMNS,
    ROWS,
    TileCodec,
    Workspace,
    bf16_plane,
    by_group,
    by_row,
    from_bf16,
    nibble_rows,
    packed_nibbles,
)

CHUNK_BYTES = 4736
_MINS, _CODES, _S, _M = 256, 512, 4608, 4672
SCALES, MINIMUMS = slice(0, _MINS), slice(_MINS, _CODES)
ROW_SCALES, ROW_MINIMUMS = slice(_S, _M), slice(_M, CHUNK_BYTES)
"""Bytes of a chunk: u8 group scales and mins, bf16 S and bf16 M, for a look at their bits."""


def groups(chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S x scale and M x min, float32 [..., 32, 8]."""
    row_scales, row_minimums = bf16_plane(chunks, _S, _M), bf16_plane(chunks, _M, CHUNK_BYTES)
    with np.errstate(invalid="ignore", over="ignore"):
        return (
            by_row(chunks[..., :_MINS]) * row_scales[..., None],
            by_row(chunks[..., _MINS:_CODES]) * row_minimums[..., None],
        )


def codes(chunks: np.ndarray, work: Workspace) -> np.ndarray:
    """Codes 0..15, uint8 [..., 32, 256]."""
    return nibble_rows(chunks[..., _CODES:_S].reshape(*chunks.shape[:-1], COLUMNS, 16), work)


def pack(
    row_scales: np.ndarray, row_minimums: np.ndarray, scales: np.ndarray, mins: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """bf16 bits S and M uint16 [..., 32], u8 scales and mins [..., 32, 8], codes uint8 [..., 32, 256] -> chunks."""
    lead = codes.shape[:-2]
    chunks = np.empty((*lead, CHUNK_BYTES), np.uint8)
    chunks[..., :_MINS] = by_group(scales)
    chunks[..., _MINS:_CODES] = by_group(mins)
    chunks[..., _CODES:_S] = packed_nibbles(codes).reshape(*lead, -1)
    chunks[..., _S:_M].view("<u2")[...] = row_scales
    chunks[..., _M:].view("<u2")[...] = row_minimums
    return chunks


def row_codes(chunks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Codes 0..15 of one row of each chunk, uint8 [m, 256]."""
    packed = chunks[:, _CODES:_S].reshape(len(chunks), COLUMNS, ROWS // 2)[np.arange(len(chunks)), :, rows // 2]
    return packed >> (4 * (rows % 2)).astype(np.uint8)[:, None] & 15


def encode(values: np.ndarray) -> np.ndarray:
    """Quantises; see `draftmill.q4nx.fitting` for how the factors are found."""
    x = grouped(values)
    s_bits, m_bits, scales, mins = super_blocks(x)
    pair = from_bf16(s_bits)[..., None] * scales, from_bf16(m_bits)[..., None] * mins
    found = nearest_codes(x, *pair).astype(np.uint8).reshape(values.shape)
    return pack(s_bits, m_bits, scales, mins, found)


CODEC = TileCodec(CHUNK_BYTES, codes, row_codes, groups, encode)
