"""Q8 chunks of 8704 bytes: weight = scale x code, signed 8-bit codes, in one of two orders that the file does not tell.

Layout (q4nx.md, section 3.4), i = 32 g + r: bf16 scales at 2 i; codes at 512 + 32 c + r (column-major) or at
512 + 4096 (r // 16) + 16 c + r mod 16 (half-split). The wrong order decodes to noise, so a caller names it.
"""

from functools import partial

import numpy as np

from draftmill.q4nx.fitting import bf16_factors, grouped
from draftmill.q4nx.tiles import (
    COLUMNS,
    ROWS,
    TileCodec,
    Workspace,
    bf16_plane,
    by_group,
    by_row,
    to_bf16,
)

CHUNK_BYTES = 8704
_CODES = 512


def groups(chunks: np.ndarray) -> tuple[np.ndarray, None]:
    """Scales, float32 [..., 32, 8]; nothing is added."""
    return by_row(bf16_plane(chunks, 0, _CODES)), None


def _bands(chunks: np.ndarray, bands: int) -> np.ndarray:
    """Codes int8 [..., bands, 256, rows of a band]: one band is the column-major order, two are the half-split."""
    return chunks[..., _CODES:].view(np.int8).reshape(*chunks.shape[:-1], bands, COLUMNS, ROWS // bands)


def _pack(bands: int, scales: np.ndarray, codes: np.ndarray) -> np.ndarray:
    lead = codes.shape[:-2]
    chunks = np.empty((*lead, CHUNK_BYTES), np.uint8)
    chunks[..., :_CODES].view("<u2")[...] = by_group(scales)
    _bands(chunks, bands)[...] = codes.reshape(*lead, bands, ROWS // bands, COLUMNS).swapaxes(-1, -2)
    return chunks


def _codes(bands: int, chunks: np.ndarray, work: Workspace) -> np.ndarray:
    packed = _bands(chunks, bands).swapaxes(-1, -2)
    codes = work.take("codes", packed.shape, np.int8)
    np.copyto(codes, packed)
    return codes.reshape(*chunks.shape[:-1], ROWS, COLUMNS)


def _row_codes(bands: int, chunks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return _bands(chunks, bands)[np.arange(len(chunks)), rows * bands // ROWS, :, rows % (ROWS // bands)]


def _encode(bands: int, values: np.ndarray) -> np.ndarray:
    x = grouped(values)
    scales = bf16_factors(x)
    codes = np.clip(np.rint(x / scales[..., None]), -127, 127).astype(np.int8)
    return _pack(bands, to_bf16(scales), codes.reshape(values.shape))


def _codec(bands: int) -> TileCodec:
    return TileCodec(CHUNK_BYTES, partial(_codes, bands), partial(_row_codes, bands), groups, partial(_encode, bands))


COLUMN_MAJOR = _codec(1)
HALF_SPLIT = _codec(2)
pack_column_major = partial(_pack, 1)
pack_half_split = partial(_pack, 2)
"""bf16 bits uint16 [..., 32, 8] and codes int8 [..., 32, 256] -> chunks uint8 [..., 8704]."""
