"""Conversion between encodings without quantising again: every code is kept, and what the factors lose is counted.

Q4_K to q4_1 chunks; q4_1 and Q4_K to GGUF Q4_1, Q4_K to GGUF Q4_K, Q8 to GGUF Q8_0. Back: `draftmill.q4nx.from_gguf`.
"""

from dataclasses import dataclass

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.q4nx import gguf_blocks, q4_1, q4_k
from draftmill.q4nx.encodings import CODECS, Encoding, Kind
from draftmill.q4nx.tiles import COLUMNS, GROUP, ROWS, Workspace, bf16_plane, by_row, to_bf16

_BATCH = 64
_LARGEST_BF16 = 255 * 2.0**120
_LARGEST_CODE = {Kind.Q4_1: 15, Kind.Q4_K: 15, Kind.Q8_COLUMN_MAJOR: 128, Kind.Q8_HALF_SPLIT: 128}


@dataclass(frozen=True)
class Rounding:
    """What another number format costs the factors of a conversion.

    groups: all, of 32 weights; inexact: those whose scale or minimum moved; bound: the most that any weight moves, the
    largest code x |change of scale| + |change of minimum| over the groups, before float32 rounding.
    """

    groups: int
    inexact: int
    bound: float

    def __add__(self, other: "Rounding") -> "Rounding":
        return Rounding(self.groups + other.groups, self.inexact + other.inexact, max(self.bound, other.bound))


NOTHING = Rounding(0, 0, 0.0)


def q4_k_to_q4_1(chunks: np.ndarray) -> np.ndarray:
    """Chunks uint8 [..., 4736] -> [..., 5120]; codes are kept, S x scale and M x min are rounded to bfloat16.

    Each weight moves by at most 15 half-ulps of the group's scale plus one half-ulp of its minimum (ulps of bfloat16).
    Raises Refused q4nx.not_finite. Source: q4nx.md, section 3.3.
    """
    lead = chunks.shape[:-1]
    scales, minimums = (to_bf16(plane) for plane in _storable(q4_k.groups(chunks)))
    return q4_1.pack(scales, minimums, q4_k.codes(chunks, Workspace())).reshape(*lead, q4_1.CHUNK_BYTES)


def half_float_rounding(encoding: Encoding, data: np.ndarray) -> Rounding:
    """What half floats cost the factors of a packed matrix; a factor that is none at all (beyond 65504) costs inf."""
    total = NOTHING
    for _, chunks in _bands(encoding, data):
        total += _rounded(encoding, chunks)[1]
    return total


def q4_1_to_gguf(encoding: Encoding, data: np.ndarray) -> tuple[np.ndarray, Rounding]:
    """GGUF Q4_1 rows uint8 [rows, columns / 32 * 20] of a q4_1 or Q4_K matrix, padding left out; and what they cost.

    Every bfloat16 of 2^-17 to 65504 in magnitude is a half float, so a q4_1 matrix is exact but for smaller ones, which
    move by at most 2^-25. The factors of Q4_K groups are products of 16 bits, of which a half float keeps 11.
    Raises Refused q4nx.outside_half_range, q4nx.columns_not_whole_groups; ValueError for another kind or size.
    """
    if encoding.kind not in (Kind.Q4_1, Kind.Q4_K) or data.shape != (encoding.nbytes,):
        raise ValueError(f"expected the {encoding.nbytes} bytes of a 4-bit matrix, not {encoding.kind} {data.shape}")
    return _to_gguf(encoding, data, gguf_blocks.Q4_1_BYTES)


def q8_to_gguf(encoding: Encoding, data: np.ndarray) -> tuple[np.ndarray, Rounding]:
    """GGUF Q8_0 rows uint8 [rows, columns / 32 * 34] of a Q8 matrix whose order is named. As `q4_1_to_gguf`."""
    if encoding.kind not in (Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT) or data.shape != (encoding.nbytes,):
        raise ValueError(f"expected the {encoding.nbytes} bytes of a Q8 matrix, not {encoding.kind} {data.shape}")
    return _to_gguf(encoding, data, gguf_blocks.Q8_0_BYTES)


def super_blocks_outside(encoding: Encoding, data: np.ndarray) -> int:
    """How many rows of tiles of a Q4_K matrix no GGUF super-block holds: eight-bit factors that no six bits and half
    float give, too."""
    return sum(int(np.count_nonzero(~_six_bit(chunks)[2])) for _, chunks in _bands(encoding, data))


def q4_k_to_gguf(encoding: Encoding, data: np.ndarray) -> np.ndarray:
    """GGUF Q4_K rows uint8 [rows, columns / 256 * 144] of a Q4_K matrix: the same codes, and the same weights to the
    last bit.

    d x scale = S x scale and dmin x min = -(M x min) have to hold exactly; where the eight-bit factors share a divisor
    it may move into d. Raises Refused q4nx.outside_super_block, ValueError for another kind, size or width.
    """
    if encoding.kind != Kind.Q4_K or data.shape != (encoding.nbytes,) or encoding.padded_columns:
        raise ValueError(f"expected a Q4_K matrix of whole super-blocks, not {encoding.kind} {data.shape}")
    blocks = np.empty((encoding.rows, encoding.tile_columns, gguf_blocks.Q4_K_BYTES), np.uint8)
    for rows, chunks in _bands(encoding, data):
        scales, mins, fits = _six_bit(chunks)
        if not fits.all():
            raise Refused(
                Refusal(
                    "q4nx.outside_super_block",
                    f"rows {rows.start} to {rows.stop - 1}",
                    int(np.count_nonzero(~fits)),
                    "factors of six bits under a half float",
                    "GGUF's Q4_K has six bits for the factors of a group and this tensor needs more; store it as "
                    "another type.",
                )
            )
        codes = q4_k.codes(chunks, Workspace())
        packed = gguf_blocks.pack_q4_k(scales[0], mins[0], scales[1], mins[1], codes)
        blocks[rows] = packed.reshape(len(chunks), ROWS, -1).swapaxes(0, 1)
    return blocks.reshape(encoding.rows, -1)


def _bands(encoding: Encoding, data: np.ndarray) -> list[tuple[slice, np.ndarray]]:
    """(rows of the matrix, chunks [tile columns, bytes]) of each row of tiles."""
    grid = data.reshape(encoding.tile_rows, encoding.tile_columns, -1)
    return [(slice(row * ROWS, (row + 1) * ROWS), chunks) for row, chunks in enumerate(grid)]


def _to_gguf(encoding: Encoding, data: np.ndarray, block_bytes: int) -> tuple[np.ndarray, Rounding]:
    if encoding.columns % GROUP:
        raise Refused(
            Refusal(
                "q4nx.columns_not_whole_groups",
                f"{encoding.rows} x {encoding.columns}",
                encoding.columns,
                f"a multiple of {GROUP}",
                "A GGUF row of Q4_1 has whole blocks of 32 weights; store this matrix in GGUF as F16 instead.",
            )
        )
    groups = encoding.columns // GROUP
    blocks = np.empty((encoding.rows, groups, block_bytes), np.uint8)
    total = NOTHING
    for rows, chunks in _bands(encoding, data):
        (scales, minimums), cost = _rounded(encoding, chunks)
        outside = [half for half in (scales, minimums) if half is not None and not np.isfinite(half).all()]
        if outside:
            raise Refused(
                Refusal(
                    "q4nx.outside_half_range",
                    f"rows {rows.start} to {rows.stop - 1}",
                    int(sum(np.count_nonzero(~np.isfinite(half)) for half in outside)),
                    "scales and minimums of at most 65504",
                    "GGUF keeps the scale and the minimum of a block as half floats, and these do not fit; "
                    "they are no weights of a real model, so check the package with `draftmill validate`.",
                )
            )
        for first in range(0, len(chunks), _BATCH):
            part = CODECS[encoding.kind].codes(chunks[first : first + _BATCH], Workspace())
            own = slice(first * COLUMNS // GROUP, first * COLUMNS // GROUP + part.shape[0] * COLUMNS // GROUP)
            width = min(own.stop, groups) - own.start
            codes = part.swapaxes(0, 1).reshape(ROWS, -1)[:, : width * GROUP]
            own = slice(own.start, own.start + width)
            packed = (
                gguf_blocks.pack_q8_0(scales[:, own], codes)
                if minimums is None
                else gguf_blocks.pack_q4_1(scales[:, own], minimums[:, own], codes)
            )
            blocks[rows, own] = packed.reshape(ROWS, width, block_bytes)
        total += cost
    return blocks.reshape(encoding.rows, -1), total


def _rounded(encoding: Encoding, chunks: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray | None], Rounding]:
    """Scales and minimums of a row of tiles as half floats [32, groups], padding left out, and what that costs."""
    groups = -(-encoding.columns // GROUP)
    planes = [
        plane.swapaxes(0, 1).reshape(ROWS, -1)[:, :groups]
        for plane in CODECS[encoding.kind].groups(chunks)
        if plane is not None
    ]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        halves = [plane.astype(np.float16) for plane in planes]
        moved = [np.abs(half.astype(np.float64) - plane) for half, plane in zip(halves, planes, strict=True)]
    costs = moved[0] * _LARGEST_CODE[encoding.kind] + (moved[1] if len(moved) > 1 else 0)
    costs = np.where(np.isnan(costs), np.inf, costs)
    cost = Rounding(costs.size, int(np.count_nonzero(costs)), float(costs.max(initial=0)))
    return (halves[0], halves[1] if len(halves) > 1 else None), cost


def _six_bit(
    chunks: np.ndarray,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], np.ndarray]:
    """(d, scales), (dmin, mins) and where both are exact: float16 and bool [tiles, 32], uint8 [tiles, 32, 8]."""
    scale = _divided(bf16_plane(chunks, *_range(q4_k.ROW_SCALES)), by_row(chunks[:, q4_k.SCALES]))
    minimum = _divided(-bf16_plane(chunks, *_range(q4_k.ROW_MINIMUMS)), by_row(chunks[:, q4_k.MINIMUMS]))
    return scale[:2], minimum[:2], scale[2] & minimum[2]


def _range(part: slice) -> tuple[int, int]:
    return part.start, part.stop


def _divided(factors: np.ndarray, eight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """factor x u8 [..., 8] as half float x u6: the smallest common divisor of the u8 that makes both exact."""
    common, largest = np.gcd.reduce(eight, axis=-1), eight.max(-1)
    common = np.where(common == 0, np.uint8(255), common)
    divisors, halves = np.zeros(factors.shape, np.uint8), np.zeros(factors.shape, np.float16)
    left = np.nonzero(largest <= common.astype(np.int64) * gguf_blocks.SIX_BITS)
    divisor = 0
    while left[0].size:
        divisor += 1
        left = tuple(each[common[left] >= divisor] for each in left)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            product = factors[left] * np.float32(divisor)
            half = product.astype(np.float16)
        found = (common[left] % divisor == 0) & (largest[left] <= divisor * gguf_blocks.SIX_BITS)
        found &= np.isfinite(half) & (half == product)
        at = tuple(each[found] for each in left)
        divisors[at], halves[at] = divisor, half[found]
        left = tuple(each[~found] for each in left)
    return halves, eight // np.maximum(divisors, 1)[..., None], divisors > 0


def _storable(planes: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    outside = sum(int(np.count_nonzero(~(np.abs(plane) <= _LARGEST_BF16))) for plane in planes)
    if outside:
        raise Refused(
            Refusal(
                "q4nx.not_finite",
                "Q4_K",
                outside,
                "finite scales and minimums",
                "The tensor's factors are no numbers that bfloat16 holds; the package is damaged, so fetch it again.",
            )
        )
    return planes
