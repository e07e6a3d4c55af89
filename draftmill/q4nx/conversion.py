"""Conversion between encodings without quantising again: Q4_K to q4_1 chunks, q4_1 to GGUF Q4_1 blocks."""

from dataclasses import dataclass

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.q4nx import q4_1, q4_k
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.tiles import GROUP, GROUPS, ROWS, Workspace, to_bf16

BLOCK_BYTES = 20
"""A GGUF Q4_1 block: half floats d and m, then 16 bytes; byte j holds code j low and code j + 16 high."""
_BATCH = 64
_LARGEST_BF16 = 255 * 2.0**120


@dataclass(frozen=True)
class HalfFloats:
    """What half floats cost a conversion to GGUF.

    groups: all; inexact: those whose scale or minimum a half float does not hold; bound: the most that any weight
    moves, 15 |change of scale| + |change of minimum| over the groups, before float32 rounding. Never above 2^-21.
    """

    groups: int
    inexact: int
    bound: float


def q4_k_to_q4_1(chunks: np.ndarray) -> np.ndarray:
    """Chunks uint8 [..., 4736] -> [..., 5120]; codes are kept, S x scale and M x min are rounded to bfloat16.

    Each weight moves by at most 15 half-ulps of the group's scale plus one half-ulp of its minimum (ulps of bfloat16).
    Raises Refused q4nx.not_finite. Source: q4nx.md, section 3.3.
    """
    lead = chunks.shape[:-1]
    scales, minimums = (to_bf16(plane) for plane in _storable(q4_k.groups(chunks)))
    return q4_1.pack(scales, minimums, q4_k.codes(chunks, Workspace())).reshape(*lead, q4_1.CHUNK_BYTES)


def q4_1_to_gguf(encoding: Encoding, data: np.ndarray) -> tuple[np.ndarray, HalfFloats]:
    """GGUF Q4_1 rows uint8 [rows, columns / 32 * 20] of a q4_1 matrix, padding left out; and what they cost.

    Every bfloat16 of 2^-17 to 65504 in magnitude is a half float, so conversion is exact but for smaller ones, which
    move by at most 2^-25. Raises Refused q4nx.outside_half_range, q4nx.columns_not_whole_groups; ValueError for
    another kind or size. Source of the block: block_q4_1 in ggml's ggml-common.h.
    """
    if encoding.kind != Kind.Q4_1 or data.shape != (encoding.nbytes,):
        raise ValueError(f"expected the {encoding.nbytes} bytes of a q4_1 matrix, not {encoding.kind} {data.shape}")
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
    grid = data.reshape(encoding.tile_rows, encoding.tile_columns, q4_1.CHUNK_BYTES)
    blocks = np.empty((encoding.rows, encoding.columns // GROUP, BLOCK_BYTES), np.uint8)
    inexact, bound = 0, 0.0
    for row, chunks in enumerate(grid):
        for first in range(0, encoding.tile_columns, _BATCH):
            part = chunks[first : first + _BATCH]
            begin = first * GROUPS
            own = blocks[row * ROWS : (row + 1) * ROWS, begin : begin + len(part) * GROUPS]
            costs = _fill_blocks(part, own, f"rows {row * ROWS} to {row * ROWS + ROWS - 1}")
            inexact, bound = inexact + int(np.count_nonzero(costs)), max(bound, float(costs.max(initial=0)))
    return blocks.reshape(encoding.rows, -1), HalfFloats(blocks.shape[0] * blocks.shape[1], inexact, bound)


def _fill_blocks(chunks: np.ndarray, own: np.ndarray, where: str) -> np.ndarray:
    """Chunks [t, 5120] -> blocks [32, up to 8 t, 20]; returns how far a weight of each group moves at most."""
    width = own.shape[1]
    planes = [plane.swapaxes(0, 1).reshape(ROWS, -1)[:, :width] for plane in q4_1.groups(chunks)]
    with np.errstate(over="ignore", under="ignore"):
        halves = [plane.astype(np.float16) for plane in planes]
    if not all(np.isfinite(half).all() for half in halves):
        raise Refused(
            Refusal(
                "q4nx.outside_half_range",
                where,
                int(sum(np.count_nonzero(~np.isfinite(half)) for half in halves)),
                "scales and minimums of at most 65504",
                "GGUF keeps the scale and the minimum of a block as half floats, and these do not fit; "
                "they are no weights of a real model, so check the package with `draftmill validate`.",
            )
        )
    own[..., 0:2].view("<f2")[..., 0] = halves[0]
    own[..., 2:4].view("<f2")[..., 0] = halves[1]
    codes = q4_1.codes(chunks, Workspace()).swapaxes(0, 1).reshape(ROWS, -1, GROUP)[:, :width]
    own[..., 4:] = codes[..., : GROUP // 2] | codes[..., GROUP // 2 :] << 4
    moved = [np.abs(half.astype(np.float64) - plane) for half, plane in zip(halves, planes, strict=True)]
    return 15 * moved[0] + moved[1]


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
