"""Blocks of GGUF's Q4_1, Q4_K and Q8_0, taken apart into factors and codes and put together again, all bit for bit.

Layouts: block_q4_1, block_q4_K and block_q8_0 in ggml's ggml-common.h, the six-bit factors of Q4_K as
get_scale_min_k4 in ggml-quants.c reads them. A group has 32 weights, a super-block of Q4_K eight groups.
"""

import numpy as np

from draftmill.q4nx.tiles import GROUP, GROUPS

Q4_1_BYTES = 20
"""Half floats d and m, then 16 bytes; byte j holds code j low and code j + 16 high. weight = d x code + m."""
Q4_K_BYTES = 144
"""Half floats d and dmin, 12 bytes of six-bit factors, then 128 bytes; byte 32 p + j holds code 64 p + j low and
64 p + 32 + j high. weight = d x scale x code - dmin x min."""
Q8_0_BYTES = 34
"""A half float d, then 32 signed bytes. weight = d x code."""
SIX_BITS = 63
"""The largest scale and min of a group in Q4_K."""


def pack_q4_1(scales: np.ndarray, minimums: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """float16 [..., g] twice and codes uint8 [..., 32 g] -> blocks uint8 [..., 20 g]."""
    blocks = np.empty((*scales.shape, Q4_1_BYTES), np.uint8)
    blocks[..., 0:2].view("<f2")[..., 0] = scales
    blocks[..., 2:4].view("<f2")[..., 0] = minimums
    blocks[..., 4:] = _nibbles(codes.reshape(*scales.shape, GROUP))
    return blocks.reshape(*scales.shape[:-1], -1)


def unpack_q4_1(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inverse of `pack_q4_1`."""
    each = blocks.reshape(*blocks.shape[:-1], -1, Q4_1_BYTES)
    codes = _codes(each[..., 4:])
    return _half(each, 0), _half(each, 2), codes.reshape(*blocks.shape[:-1], -1)


def pack_q4_k(
    scale: np.ndarray, minimum: np.ndarray, scales: np.ndarray, mins: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """float16 d and dmin [..., s], six-bit factors uint8 [..., s, 8] twice, codes uint8 [..., 256 s] -> uint8
    [..., 144 s]."""
    blocks = np.empty((*scale.shape, Q4_K_BYTES), np.uint8)
    blocks[..., 0:2].view("<f2")[..., 0] = scale
    blocks[..., 2:4].view("<f2")[..., 0] = minimum
    blocks[..., 4:8] = scales[..., :4] | (scales[..., 4:] >> 4) << 6
    blocks[..., 8:12] = mins[..., :4] | (mins[..., 4:] >> 4) << 6
    blocks[..., 12:16] = scales[..., 4:] & 15 | (mins[..., 4:] & 15) << 4
    pairs = codes.reshape(*scale.shape, GROUPS // 2, 2 * GROUP)
    blocks[..., 16:] = _nibbles(pairs).reshape(*scale.shape, -1)
    return blocks.reshape(*scale.shape[:-1], -1)


def unpack_q4_k(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The inverse of `pack_q4_k`."""
    each = blocks.reshape(*blocks.shape[:-1], -1, Q4_K_BYTES)
    first, second, third = each[..., 4:8], each[..., 8:12], each[..., 12:16]
    scales = np.concatenate([first & SIX_BITS, third & 15 | first >> 6 << 4], axis=-1)
    mins = np.concatenate([second & SIX_BITS, third >> 4 | second >> 6 << 4], axis=-1)
    codes = _codes(each[..., 16:].reshape(*each.shape[:-1], GROUPS // 2, GROUP))
    return _half(each, 0), _half(each, 2), scales, mins, codes.reshape(*blocks.shape[:-1], -1)


def pack_q8_0(scales: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """float16 [..., g] and codes int8 [..., 32 g] -> blocks uint8 [..., 34 g]."""
    blocks = np.empty((*scales.shape, Q8_0_BYTES), np.uint8)
    blocks[..., 0:2].view("<f2")[..., 0] = scales
    blocks[..., 2:] = codes.reshape(*scales.shape, GROUP).view(np.uint8)
    return blocks.reshape(*scales.shape[:-1], -1)


def unpack_q8_0(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `pack_q8_0`."""
    each = blocks.reshape(*blocks.shape[:-1], -1, Q8_0_BYTES)
    return _half(each, 0), np.ascontiguousarray(each[..., 2:]).view(np.int8).reshape(*blocks.shape[:-1], -1)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0]


def _nibbles(codes: np.ndarray) -> np.ndarray:
    """[..., n] -> [..., n / 2]: the first half of the codes low, the second high."""
    half = codes.shape[-1] // 2
    return codes[..., :half] | codes[..., half:] << 4


def _codes(nibbles: np.ndarray) -> np.ndarray:
    return np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
