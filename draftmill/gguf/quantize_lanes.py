"""The K-quants' searches for a block's scale, many blocks at a time, with exactly ggml's results.

ggml's reference (quantize_row_q4_K_ref, _q5_K_ref and _q6_K_ref without an importance matrix) tries a row of candidate
scales for each small block and adds up floats one after the other, so a compiler may not vectorize it. Here each of
LANES blocks keeps that order of additions in a lane of its own, and the lanes go through one instruction together: the
same roundings, hence the same bytes, several times faster. Numba keeps IEEE semantics: nothing fused or reordered.

An error's weight is rms(x) + |x| in the affine search and x * x in the symmetric one. Beside the scale (and minimum) a
search tells the winning candidate's inverse scale (and base): its levels count where the scale is later rounded to 0.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

LANES = 64
AFFINE_BLOCK = 32
SYMMETRIC_BLOCK = 16
SYMMETRIC_TOP = 32
TINY = np.float32(1e-15)
"""ggml takes a block whose largest magnitude is below this for empty."""

_F = np.float32
_I = np.int32
_ZERO, _ONE, _STEP = _F(0), _F(1), _F(0.1)
_ROUNDER, _MANTISSA, _HALF = _F(12582912.0), _I(0x7FFFFF), _I(0x400000)


def _compiled(function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(error_model="numpy", nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that a cache could be written to
        return numba.njit(error_model="numpy", nogil=True)(function)


@_compiled
def nearest(value):  # type: ignore[no-untyped-def]
    """Nearest even integer by ggml's trick on the bits; beyond 2^22 and for NaN it wraps as ggml's does."""
    return (np.float32(value + _ROUNDER).view(np.int32) & _MANTISSA) - _HALF


@_compiled
def search_affine(x, top, first, steps, found):  # type: ignore[no-untyped-def]
    """For each row of x (n, 32) and levels 0..top: writes found (4, n), float32: scale, minimum, inverse scale, base.

    Candidate s of 0..steps has the inverse scale (first + 0.1 s + top) / (highest - lowest).
    """
    high_level, most = _F(top), _I(top)
    t = np.zeros((AFFINE_BLOCK, LANES), np.float32)
    w = np.empty_like(t)
    levels = np.empty_like(t)
    rows = np.empty((17, LANES), np.float32)
    low, high, sum_w, sum_x = rows[0], rows[1], rows[2], rows[3]
    inverse, scale, best, best_inverse, best_base = rows[4], rows[5], rows[6], rows[7], rows[8]
    sum_l, sum_l2, sum_xl, fit_scale, fit_low = rows[9], rows[10], rows[11], rows[12], rows[13]
    error, solvable, flat = rows[14], rows[15], rows[16]
    for start in range(0, x.shape[0], LANES):
        width = min(LANES, x.shape[0] - start)
        for i in range(AFFINE_BLOCK):
            for k in range(width):
                t[i, k] = x[start + k, i]

        for k in range(LANES):
            sum_x[k] = _ZERO
        for i in range(AFFINE_BLOCK):
            for k in range(LANES):
                sum_x[k] += t[i, k] * t[i, k]
        for k in range(LANES):
            sum_x[k] = np.sqrt(sum_x[k] / _F(AFFINE_BLOCK))
        for i in range(AFFINE_BLOCK):
            for k in range(LANES):
                w[i, k] = sum_x[k] + abs(t[i, k])

        for k in range(LANES):
            low[k] = t[0, k]
            high[k] = t[0, k]
            sum_w[k] = w[0, k]
            sum_x[k] = w[0, k] * t[0, k]
        for i in range(1, AFFINE_BLOCK):
            for k in range(LANES):
                v = t[i, k]
                low[k] = v if v < low[k] else low[k]
                high[k] = v if v > high[k] else high[k]
                sum_w[k] += w[i, k]
                sum_x[k] += w[i, k] * v
        for k in range(LANES):
            low[k] = _ZERO if low[k] > _ZERO else low[k]
            flat[k] = _ONE if low[k] == high[k] else _ZERO
            inverse[k] = high_level / (high[k] - low[k])
            scale[k] = _ONE / inverse[k]
            best_inverse[k] = inverse[k]
            best_base[k] = low[k]
            best[k] = _ZERO
        for i in range(AFFINE_BLOCK):
            for k in range(LANES):
                v = t[i, k]
                level = _F(max(_I(0), min(most, nearest(inverse[k] * (v - low[k])))))
                off = scale[k] * level + low[k] - v
                best[k] += w[i, k] * (off * off)
        for k in range(LANES):
            # A flat block has scale 0 and levels 0, and no candidate may win: no error is below -1.
            best[k] = -_ONE if flat[k] > _ZERO else best[k]
            scale[k] = _ZERO if flat[k] > _ZERO else scale[k]
            best_inverse[k] = _ZERO if flat[k] > _ZERO else best_inverse[k]

        for s in range(steps + 1):
            numerator = first + _STEP * _F(s) + high_level
            for k in range(LANES):
                inverse[k] = numerator / (high[k] - low[k])
                sum_l[k] = _ZERO
                sum_l2[k] = _ZERO
                sum_xl[k] = _ZERO
            for i in range(AFFINE_BLOCK):
                for k in range(LANES):
                    v = t[i, k]
                    level = _F(max(_I(0), min(most, nearest(inverse[k] * (v - low[k])))))
                    levels[i, k] = level
                    weighted = w[i, k] * level
                    sum_l[k] += weighted
                    sum_l2[k] += weighted * level
                    sum_xl[k] += weighted * v
            for k in range(LANES):
                determinant = sum_w[k] * sum_l2[k] - sum_l[k] * sum_l[k]
                both = (sum_w[k] * sum_xl[k] - sum_x[k] * sum_l[k]) / determinant
                base = (sum_l2[k] * sum_x[k] - sum_l[k] * sum_xl[k]) / determinant
                alone = sum_xl[k] / sum_l2[k]
                fit_scale[k] = alone if base > _ZERO else both
                fit_low[k] = _ZERO if base > _ZERO else base
                solvable[k] = _ONE if determinant > _ZERO else _ZERO
                error[k] = _ZERO
            for i in range(AFFINE_BLOCK):
                for k in range(LANES):
                    off = fit_scale[k] * levels[i, k] + fit_low[k] - t[i, k]
                    error[k] += w[i, k] * (off * off)
            for k in range(LANES):
                take = (solvable[k] > _ZERO) & (error[k] < best[k])
                best[k] = error[k] if take else best[k]
                best_inverse[k] = inverse[k] if take else best_inverse[k]
                best_base[k] = low[k] if take else best_base[k]
                scale[k] = fit_scale[k] if take else scale[k]
                # The next candidates start from the minimum found, as ggml's do.
                low[k] = fit_low[k] if take else low[k]
        for k in range(width):
            found[0, start + k] = scale[k]
            found[1, start + k] = -low[k]
            found[2, start + k] = best_inverse[k]
            found[3, start + k] = best_base[k]


@_compiled
def search_symmetric(x, found):  # type: ignore[no-untyped-def]
    """For each row of x (n, 16) and levels -32..31: writes found (2, n), float32: scale, inverse scale.

    Candidates have the inverse scale -(32 + 0.1 s) / (the value of largest magnitude): s = 0 first, then -9..9.
    An empty block gets 0 and 0.
    """
    t = np.zeros((SYMMETRIC_BLOCK, LANES), np.float32)
    w = np.empty_like(t)
    rows = np.empty((8, LANES), np.float32)
    magnitude, extreme, inverse, sum_xl = rows[0], rows[1], rows[2], rows[3]
    sum_l2, scale, best, best_inverse = rows[4], rows[5], rows[6], rows[7]
    for start in range(0, x.shape[0], LANES):
        width = min(LANES, x.shape[0] - start)
        for i in range(SYMMETRIC_BLOCK):
            for k in range(width):
                t[i, k] = x[start + k, i]
        for k in range(LANES):
            magnitude[k] = _ZERO
            extreme[k] = _ZERO
        for i in range(SYMMETRIC_BLOCK):
            for k in range(LANES):
                v = t[i, k]
                larger = abs(v) > magnitude[k]
                magnitude[k] = abs(v) if larger else magnitude[k]
                extreme[k] = v if larger else extreme[k]
                w[i, k] = v * v
        for turn in range(19):
            s = turn - 10 if turn else 0
            s += 1 if s >= 0 and turn else 0
            numerator = -(_F(SYMMETRIC_TOP) + _STEP * _F(s))
            for k in range(LANES):
                inverse[k] = numerator / extreme[k]
                sum_xl[k] = _ZERO
                sum_l2[k] = _ZERO
            for i in range(SYMMETRIC_BLOCK):
                for k in range(LANES):
                    v = t[i, k]
                    level = _F(max(_I(-SYMMETRIC_TOP), min(_I(SYMMETRIC_TOP - 1), nearest(inverse[k] * v))))
                    sum_xl[k] += w[i, k] * v * level
                    sum_l2[k] += w[i, k] * level * level
            for k in range(LANES):
                fit = sum_xl[k] / sum_l2[k]
                if turn == 0:
                    scale[k] = fit if sum_l2[k] != _ZERO else _ZERO
                    best[k] = scale[k] * sum_xl[k]
                    best_inverse[k] = inverse[k]
                else:
                    take = (sum_l2[k] > _ZERO) & (sum_xl[k] * sum_xl[k] > best[k] * sum_l2[k])
                    scale[k] = fit if take else scale[k]
                    best[k] = fit * sum_xl[k] if take else best[k]
                    best_inverse[k] = inverse[k] if take else best_inverse[k]
        for k in range(width):
            found[0, start + k] = _ZERO if magnitude[k] < TINY else scale[k]
            found[1, start + k] = _ZERO if magnitude[k] < TINY else best_inverse[k]


@_compiled
def round_affine(x, top, rounded, found, levels):  # type: ignore[no-untyped-def]
    """Levels 0..top of x (n, 32) under the rounded scales and minima (2, n), to uint8 (n, 32).

    Where a scale was rounded to 0 they are those of the search.
    """
    most = _I(top)
    for b in range(x.shape[0]):
        if rounded[0, b] != _ZERO:
            scale, minimum = rounded[0, b], rounded[1, b]
            for i in range(AFFINE_BLOCK):
                levels[b, i] = max(_I(0), min(most, nearest((x[b, i] + minimum) / scale)))
        else:
            inverse, base = found[2, b], found[3, b]
            for i in range(AFFINE_BLOCK):
                levels[b, i] = max(_I(0), min(most, nearest(inverse * (x[b, i] - base))))


@_compiled
def round_symmetric(x, rounded, found, levels):  # type: ignore[no-untyped-def]
    """Levels of x (n, 16) with 32 added under the rounded scales (n,), to uint8 (n, 16).

    Where a scale was rounded to 0 they are those of the search, and all 0 in an empty block.
    """
    low, high = _I(-SYMMETRIC_TOP), _I(SYMMETRIC_TOP - 1)
    for b in range(x.shape[0]):
        if rounded[b] != _ZERO:
            scale = rounded[b]
            for i in range(SYMMETRIC_BLOCK):
                levels[b, i] = max(low, min(high, nearest(x[b, i] / scale))) + _I(SYMMETRIC_TOP)
        elif found[1, b] != _ZERO:
            inverse = found[1, b]
            for i in range(SYMMETRIC_BLOCK):
                levels[b, i] = max(low, min(high, nearest(inverse * x[b, i]))) + _I(SYMMETRIC_TOP)
        else:
            for i in range(SYMMETRIC_BLOCK):
                levels[b, i] = 0
