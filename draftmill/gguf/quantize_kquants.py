"""Q4_K, Q5_K and Q6_K blocks of 256 values, as ggml packs them (layouts: block_q4_K, block_q5_K, block_q6_K in ggml).

Raises ImportError on import where Numba is missing; `quantize_tensor` then leaves these types to ggml itself.
"""

import numpy as np

from draftmill.gguf.quantize_lanes import (
    AFFINE_BLOCK,
    SYMMETRIC_BLOCK,
    TINY,
    round_affine,
    round_symmetric,
    search_affine,
    search_symmetric,
)

_F = np.float32
_LARGEST_SCALE = 63
"""Scales and minima of the affine types have 6 bits."""


def encode_q4_k(values: np.ndarray) -> np.ndarray:
    """float32 values (n,), n a multiple of 256, to uint8: d, dmin (float16), 12 bytes of scales, 128 of levels."""
    head, levels = _affine(values, top=15, first=-1.0, steps=20)
    return np.concatenate([head, _nibbles(levels)], axis=1).ravel()


def encode_q5_k(values: np.ndarray) -> np.ndarray:
    """As Q4_K, with 32 bytes of fifth bits before the levels: bit b of byte j belongs to value j of small block b."""
    head, levels = _affine(values, top=31, first=-0.5, steps=15)
    fifth = np.zeros((len(levels), AFFINE_BLOCK), np.uint8)
    for b in range(8):
        fifth |= levels[:, b] >> 4 << b
    return np.concatenate([head, fifth, _nibbles(levels)], axis=1).ravel()


def encode_q6_k(values: np.ndarray) -> np.ndarray:
    """float32 values (n,) to uint8: 128 bytes of low nibbles, 64 of high bits, 16 int8 scales, d (float16)."""
    x = values.reshape(-1, SYMMETRIC_BLOCK)
    found = np.empty((2, len(x)), np.float32)
    search_symmetric(x, found)
    scales = found[0].reshape(-1, 16)
    magnitudes = np.fmax(np.abs(scales), _F(0))  # a sum that overflowed into NaN never counts as the largest
    largest = magnitudes.argmax(axis=1)[:, None]
    empty = np.take_along_axis(magnitudes, largest, 1)[:, 0] < TINY
    with np.errstate(all="ignore"):
        inverse = _F(-128) / np.take_along_axis(scales, largest, 1)
        d = (_F(1) / inverse).astype(np.float16)
        small = np.minimum(_nearest(inverse * scales), 127).astype(np.int8)
        d[empty], small[empty] = 0, 0
        rounded = d.astype(np.float32) * small
    levels = np.empty(x.shape, np.uint8)
    round_symmetric(x, rounded.ravel(), found, levels)
    quarters = levels.reshape(-1, 2, 4, 32)
    quarters[empty] = 0
    packed = np.empty((len(d), 210), np.uint8)
    packed[:, :128] = (quarters[:, :, :2] & 15 | quarters[:, :, 2:] << 4).reshape(-1, 128)
    high = quarters >> 4
    packed[:, 128:192] = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(-1, 64)
    packed[:, 192:208] = small.view(np.uint8)
    packed[:, 208:] = d.view(np.uint8)
    return packed.ravel()


def _affine(values: np.ndarray, top: int, first: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the 16 bytes before the levels, and the levels, uint8 of shape (superblocks, 8, 32)."""
    x = values.reshape(-1, AFFINE_BLOCK)
    found = np.empty((4, len(x)), np.float32)
    search_affine(x, top, _F(first), steps, found)
    d, s = _six_bits(found[0].reshape(-1, 8))
    dmin, m = _six_bits(found[1].reshape(-1, 8))
    levels = np.empty(x.shape, np.uint8)
    with np.errstate(all="ignore"):
        rounded = np.stack([(d.astype(np.float32) * s).ravel(), (dmin.astype(np.float32) * m).ravel()])
    round_affine(x, top, rounded, found, levels)
    head = np.empty((len(d), 16), np.uint8)
    head[:, 0:2], head[:, 2:4] = d.view(np.uint8), dmin.view(np.uint8)
    head[:, 4:8], head[:, 8:12] = (v[:, :4] | v[:, 4:] >> 4 << 6 for v in (s, m))
    head[:, 12:16] = s[:, 4:] & 15 | m[:, 4:] << 4
    return head, levels.reshape(-1, 8, AFFINE_BLOCK)


def _six_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(float16 (n, 1), uint8 (n, 8)): a superblock's common factor, and the values in units of it."""
    largest = np.maximum(values.max(axis=1, keepdims=True), _F(0))
    with np.errstate(all="ignore"):
        inverse = np.where(largest > 0, _F(_LARGEST_SCALE) / largest, _F(0))
        # A negative scale wraps to a large byte before the limit, as in ggml.
        small = np.minimum(_nearest(inverse * values).astype(np.uint8), np.uint8(_LARGEST_SCALE))
        return (largest / _F(_LARGEST_SCALE)).astype(np.float16), small


def _nearest(values: np.ndarray) -> np.ndarray:
    """quantize_lanes.nearest, for arrays."""
    return ((values + _F(12582912.0)).view(np.int32) & 0x7FFFFF) - 0x400000


def _nibbles(levels: np.ndarray) -> np.ndarray:
    """(n, 8, 32) to (n, 128): small blocks 2p and 2p + 1 share 32 bytes, the even one in the low nibbles."""
    pairs = levels.reshape(-1, 4, 2, AFFINE_BLOCK)
    return (pairs[:, :, 0] & 15 | pairs[:, :, 1] << 4).reshape(-1, 128)
