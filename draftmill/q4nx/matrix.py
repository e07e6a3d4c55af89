"""Decoding of a matrix whole, by tiles or by rows, and encoding of one: the same calls for every encoding."""

from dataclasses import dataclass

import numpy as np

from draftmill.q4nx import block_matrix
from draftmill.q4nx.encodings import CODECS, Encoding, Kind
from draftmill.q4nx.fitting import padded, require_encodable
from draftmill.q4nx.tiles import COLUMNS, ROWS, TileCodec, Workspace, apply_groups, from_bf16, to_bf16

_BATCH = 16
"""Tiles decoded at once: their codes and weights stay in a core's L2 cache."""
_STRIP = 64
"""Tiles whose factors are made at once."""
_ENCODE_BATCH = 32


@dataclass(frozen=True)
class Padding:
    """Columns behind the matrix's own, and the largest magnitude they decode to (0 where the padding is zero)."""

    columns: int
    largest: float


def decode(encoding: Encoding, data: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The weights float32 [rows, columns], padding left out, into `out` where given.

    data: the stored bytes, uint8 [nbytes]. Raises ValueError when data or out have another size or type, or the order
    of Q8 codes was not named.
    """
    out = _buffer(out, (encoding.rows, encoding.columns))
    if encoding.kind in (Kind.BF16, Kind.F32):
        plain = _plain(encoding, data)
        out[...] = plain if encoding.kind == Kind.F32 else from_bf16(plain)
    elif encoding.kind == Kind.BLOCK_BF16:
        bands = out.reshape(-1, ROWS, encoding.columns)
        for blocks, band in zip(_plain(encoding, data), bands, strict=True):
            block_matrix.decode(blocks, band)
    else:
        _decode_grid(*_grid(encoding, data), out)
    return out


def decode_tiles(
    encoding: Encoding, data: np.ndarray, first: int, last: int, out: np.ndarray | None = None
) -> np.ndarray:
    """Tiles [first, last) in the file's order, padding included: float32 [last - first, 32, 256].

    A tile of the block-matrix layout is a band of 32 rows: [last - first, 32, columns].
    Raises ValueError as `decode` does, for a range outside the matrix, and for BF16 and F32, which have no tiles.
    """
    if encoding.kind == Kind.BLOCK_BF16:
        blocks = _ranged(_plain(encoding, data), first, last)
        out = _buffer(out, (last - first, ROWS, encoding.columns))
        block_matrix.decode(blocks, out)
        return out
    codec, grid = _grid(encoding, data)
    chunks = _ranged(grid.reshape(-1, codec.chunk_bytes), first, last)
    out = _buffer(out, (last - first, ROWS, COLUMNS))
    # Tiles one below the other are the matrix of a single column of tiles.
    _decode_grid(codec, chunks[:, None], out.reshape(-1, COLUMNS))
    return out


def decode_rows(encoding: Encoding, data: np.ndarray, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Some rows, float32 [len(rows), columns]; only their bytes are touched. Raises ValueError as `decode` does."""
    rows = np.asarray(rows, np.int64)
    if rows.size and not 0 <= rows.min() <= rows.max() < encoding.rows:
        raise ValueError(f"rows must lie in 0..{encoding.rows - 1}")
    out = _buffer(out, (len(rows), encoding.columns))
    if encoding.kind in (Kind.BF16, Kind.F32):
        plain = _plain(encoding, data)[rows]
        out[...] = plain if encoding.kind == Kind.F32 else from_bf16(plain)
    elif encoding.kind == Kind.BLOCK_BF16:
        out[...] = block_matrix.decode_rows(_plain(encoding, data), rows)
    else:
        codec, grid = _grid(encoding, data)
        for column in range(encoding.tile_columns):
            begin = column * COLUMNS
            part = out[:, begin : begin + COLUMNS]
            part[...] = _decoded_rows(codec, grid[rows // ROWS, column], rows % ROWS)[:, : part.shape[1]]
    return out


def padding(encoding: Encoding, data: np.ndarray) -> Padding:
    """What the padding of a packed matrix holds. Where K is no multiple of 32 it shares groups with weights, so that
    even a faithful writer's zeros decode to something small."""
    if not encoding.padded_columns:
        return Padding(0, 0.0)
    codec, grid = _grid(encoding, data)
    largest = np.float32(0)
    for at in range(0, encoding.tile_rows, _STRIP):
        last = grid[at : at + _STRIP, -1:]
        tiles = np.empty((len(last) * ROWS, COLUMNS), np.float32)
        _decode_grid(codec, last, tiles)
        largest = np.maximum(largest, np.abs(tiles[:, COLUMNS - encoding.padded_columns :]).max())
    return Padding(encoding.padded_columns, float(largest))


def encode(encoding: Encoding, values: np.ndarray) -> np.ndarray:
    """The stored bytes, uint8 [nbytes], of weights float32 [rows, columns]; packed kinds are quantised.

    Raises Refused q4nx.not_encodable for values that are no weights, ValueError for another shape or type.
    """
    if values.shape != (encoding.rows, encoding.columns) or values.dtype != np.float32:
        raise ValueError(f"values must be float32 [{encoding.rows}, {encoding.columns}]")
    require_encodable(values, f"{encoding.kind} {encoding.rows} x {encoding.columns}")
    match encoding.kind:
        case Kind.F32:
            stored = np.ascontiguousarray(values, "<f4")
        case Kind.BF16:
            stored = to_bf16(np.ascontiguousarray(values))
        case Kind.BLOCK_BF16:
            stored = block_matrix.encode(np.ascontiguousarray(values))
        case _:
            stored = _encode_grid(encoding, values)
    return stored.reshape(-1).view(np.uint8)


def _encode_grid(encoding: Encoding, values: np.ndarray) -> np.ndarray:
    codec = _codec(encoding)
    tiles = padded(values).reshape(encoding.tile_rows, ROWS, encoding.tile_columns, COLUMNS).swapaxes(1, 2)
    stored = np.empty((encoding.tile_rows, encoding.tile_columns, codec.chunk_bytes), np.uint8)
    for row in range(encoding.tile_rows):
        for at in range(0, encoding.tile_columns, _ENCODE_BATCH):
            part = slice(at, at + _ENCODE_BATCH)
            stored[row, part] = codec.encode(np.ascontiguousarray(tiles[row, part]))
    return stored


def _decode_grid(codec: TileCodec, grid: np.ndarray, out: np.ndarray) -> None:
    """Chunks [tile rows, tile columns, chunk_bytes] -> out [32 tile rows, up to 256 tile columns].

    Batches are decoded in cache and copied out once: each pass over the output would cost more than the arithmetic.
    """
    down, across = grid.shape[:2]
    bands = out.reshape(down, ROWS, out.shape[1])
    step = max(1, _BATCH // across)
    strip = step * max(1, _STRIP // (step * across))
    work = Workspace()
    parts = [slice(column, column + _BATCH) for column in range(0, across, _BATCH)]
    with np.errstate(invalid="ignore", over="ignore"):
        for row in range(0, down, step):
            if row % strip == 0:
                scales, minimums = codec.groups(grid[row : row + strip])
            inner = slice(row % strip, row % strip + step)
            for part in parts:
                codes = codec.codes(grid[row : row + step, part], work)
                staged = work.take("staged", codes.shape, np.float32)
                added = None if minimums is None else minimums[inner, part]
                apply_groups(codes, scales[inner, part], added, staged)
                own = slice(part.start * COLUMNS, part.stop * COLUMNS)
                _copy_by_rows(staged, bands[row : row + step, :, own])


def _decoded_rows(codec: TileCodec, chunks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    each = np.arange(len(chunks)), rows
    scales, minimums = codec.groups(chunks)
    out = np.empty((len(chunks), COLUMNS), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        apply_groups(codec.row_codes(chunks, rows), scales[each], None if minimums is None else minimums[each], out)
    return out


def _copy_by_rows(tiles: np.ndarray, part: np.ndarray) -> None:
    """Tiles [a, t, 32, 256] to where they belong in rows [a, 32, width]; columns beyond the width are padding."""
    down, across = tiles.shape[:2]
    whole = part.shape[2] // COLUMNS
    own = part[..., : whole * COLUMNS].reshape(down, ROWS, whole, COLUMNS)
    own[...] = tiles[:, :whole].swapaxes(1, 2)
    if whole < across:
        part[..., whole * COLUMNS :] = tiles[:, whole, :, : part.shape[2] - whole * COLUMNS]


def _codec(encoding: Encoding) -> TileCodec:
    if encoding.kind not in CODECS:
        raise ValueError(f"{encoding.kind} cannot be coded in tiles (of Q8, name the order of its codes first)")
    return CODECS[encoding.kind]


def _grid(encoding: Encoding, data: np.ndarray) -> tuple[TileCodec, np.ndarray]:
    codec = _codec(encoding)
    return codec, _checked(encoding, data).reshape(encoding.tile_rows, encoding.tile_columns, codec.chunk_bytes)


def _plain(encoding: Encoding, data: np.ndarray) -> np.ndarray:
    return _checked(encoding, data).view("<f4" if encoding.kind == Kind.F32 else "<u2").reshape(encoding.shape)


def _checked(encoding: Encoding, data: np.ndarray) -> np.ndarray:
    if data.dtype != np.uint8 or data.shape != (encoding.nbytes,):
        raise ValueError(f"data must be uint8 [{encoding.nbytes}], not {data.dtype} {list(data.shape)}")
    return data


def _ranged(chunks: np.ndarray, first: int, last: int) -> np.ndarray:
    if not 0 <= first <= last <= len(chunks):
        raise ValueError(f"tiles [{first}, {last}) are not within 0..{len(chunks)}")
    return chunks[first:last]


def _buffer(out: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    if out is None:
        return np.empty(shape, np.float32)
    if out.dtype != np.float32 or out.shape != shape or not out.flags.c_contiguous:
        raise ValueError(f"out must be contiguous float32 {list(shape)}, not {out.dtype} {list(out.shape)}")
    return out
