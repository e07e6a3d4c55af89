"""GGUF blocks -> Q4NX chunks with the same codes; what bfloat16 factors lose of half floats is counted.

A half float has 11 significant bits and a bfloat16 8, so that blocks which were made from chunks come back bit for bit,
and those of llama-quantize lose up to 2^-9 of a factor. Columns up to a multiple of 256 are padded with groups of
zeros as `draftmill.q4nx.matrix.encode` writes them.
"""

from collections.abc import Callable

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftmill.q4nx import gguf_blocks, q4_1, q4_k, q8
from draftmill.q4nx.conversion import NOTHING, Rounding
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.fitting import FLAT_SCALE
from draftmill.q4nx.tiles import COLUMNS, GROUPS, ROWS, from_bf16, to_bf16

SOURCES: dict[GGMLQuantizationType, tuple[Kind, ...]] = {
    GGMLQuantizationType.Q4_1: (Kind.Q4_1,),
    GGMLQuantizationType.Q4_K: (Kind.Q4_K, Kind.Q4_1),
    GGMLQuantizationType.Q8_0: (Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT),
}
"""GGUF type -> the encodings that take its codes, the exact one first."""


def gguf_to_q4nx(kind: GGMLQuantizationType, blocks: np.ndarray, encoding: Encoding) -> tuple[np.ndarray, Rounding]:
    """The stored bytes, uint8 [encoding.nbytes], of GGUF rows uint8 [rows, bytes of a row]; and what they cost.

    Raises ValueError when `encoding` does not take codes of `kind`, or is of another size.
    """
    if encoding.kind not in SOURCES.get(kind, ()):
        raise ValueError(f"{encoding.kind} does not take the codes of {kind.name}")
    if encoding.rows % ROWS or blocks.shape[0] != encoding.rows:
        raise ValueError(f"expected {encoding.rows} rows in whole tiles of {ROWS}, not {blocks.shape[0]}")
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if encoding.columns % block or blocks.shape[1] != encoding.columns // block * block_bytes:
        raise ValueError(f"expected blocks of {encoding.columns} columns, not rows of {blocks.shape[1]} bytes")
    convert = _CONVERT[kind, encoding.kind]
    bands, total = [], NOTHING
    for band in blocks.reshape(encoding.tile_rows, ROWS, -1):
        chunks, cost = convert(band, encoding)
        bands.append(chunks.reshape(-1))
        total += cost
    return np.concatenate(bands), total


def _q4_1(band: np.ndarray, encoding: Encoding) -> tuple[np.ndarray, Rounding]:
    scales, minimums, codes = gguf_blocks.unpack_q4_1(band)
    return _lines(scales.astype(np.float32), minimums.astype(np.float32), codes, encoding)


def _q4_k_as_q4_1(band: np.ndarray, encoding: Encoding) -> tuple[np.ndarray, Rounding]:
    d, dmin, scales, mins, codes = gguf_blocks.unpack_q4_k(band)
    lines = d.astype(np.float32)[..., None] * scales, -dmin.astype(np.float32)[..., None] * mins
    return _lines(lines[0].reshape(ROWS, -1), lines[1].reshape(ROWS, -1), codes, encoding)


def _lines(
    scales: np.ndarray, minimums: np.ndarray, codes: np.ndarray, encoding: Encoding
) -> tuple[np.ndarray, Rounding]:
    """Factors float32 [32, groups], codes [32, columns] -> q4_1 chunks."""
    bits = to_bf16(scales), to_bf16(minimums)
    cost = _cost(15 * _moved(scales, bits[0]) + _moved(minimums, bits[1]))
    flat = to_bf16(np.full(1, FLAT_SCALE, np.float32))[0]
    planes = (_tiled(bits[0], GROUPS, encoding, flat), _tiled(bits[1], GROUPS, encoding, np.uint16(0)))
    return q4_1.pack(*planes, _tiled(codes, COLUMNS, encoding, np.uint8(0))), cost


def _q4_k(band: np.ndarray, encoding: Encoding) -> tuple[np.ndarray, Rounding]:
    d, dmin, scales, mins, codes = gguf_blocks.unpack_q4_k(band)
    wide = d.astype(np.float32), -dmin.astype(np.float32)
    bits = to_bf16(wide[0]), to_bf16(wide[1])
    cost = _cost(15 * _moved(wide[0], bits[0])[..., None] * scales + _moved(wide[1], bits[1])[..., None] * mins)
    turned = (each.swapaxes(0, 1) for each in (*bits, scales, mins, codes.reshape(ROWS, -1, COLUMNS)))
    return q4_k.pack(*(np.ascontiguousarray(each) for each in turned)), cost


def _q8(band: np.ndarray, encoding: Encoding) -> tuple[np.ndarray, Rounding]:
    scales, codes = gguf_blocks.unpack_q8_0(band)
    wide = scales.astype(np.float32)
    bits = to_bf16(wide)
    pack = q8.pack_column_major if encoding.kind == Kind.Q8_COLUMN_MAJOR else q8.pack_half_split
    flat = to_bf16(np.full(1, FLAT_SCALE, np.float32))[0]
    tiles = _tiled(bits, GROUPS, encoding, flat), _tiled(codes, COLUMNS, encoding, np.int8(0))
    return pack(*tiles), _cost(128 * _moved(wide, bits))


def _tiled(values: np.ndarray, width: int, encoding: Encoding, padding: np.generic) -> np.ndarray:
    """[32, columns / 256 x width] -> [tile columns, 32, width], filled up with `padding`."""
    missing = encoding.tile_columns * width - values.shape[1]
    whole = np.pad(values, ((0, 0), (0, missing)), constant_values=padding.item()) if missing else values
    return np.ascontiguousarray(whole.reshape(ROWS, encoding.tile_columns, width).swapaxes(0, 1))


def _moved(values: np.ndarray, bits: np.ndarray) -> np.ndarray:
    return np.abs(from_bf16(bits).astype(np.float64) - values)


def _cost(groups: np.ndarray) -> Rounding:
    return Rounding(groups.size, int(np.count_nonzero(groups)), float(groups.max(initial=0)))


_CONVERT: dict[tuple[GGMLQuantizationType, Kind], Callable[[np.ndarray, Encoding], tuple[np.ndarray, Rounding]]] = {
    (GGMLQuantizationType.Q4_1, Kind.Q4_1): _q4_1,
    (GGMLQuantizationType.Q4_K, Kind.Q4_K): _q4_k,
    (GGMLQuantizationType.Q4_K, Kind.Q4_1): _q4_k_as_q4_1,
    (GGMLQuantizationType.Q8_0, Kind.Q8_COLUMN_MAJOR): _q8,
    (GGMLQuantizationType.Q8_0, Kind.Q8_HALF_SPLIT): _q8,
}
