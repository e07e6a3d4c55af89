"""Round-to-nearest quantising with the best scale and minimum per group.

Method: for each group, codes are taken to nearest under several widths of the range (from 14.2 to 15.8 steps between
the smallest and the largest value); least squares over those codes gives a scale and a minimum; both are rounded as
the file stores them; the codes are taken to nearest again under the rounded pair, and the pair with the smallest
squared error of the decoded values is kept. The plain range is always among the candidates, so the result is never
worse than it. (The search is that of llama.cpp's K-quants, here with stored precision inside the loop.)
"""

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.tiles import COLUMNS, GROUP, GROUPS, from_bf16, to_bf16

FLAT_SCALE = 2.0**-24
"""The scale of a group without spread: positive, as every reader expects, and exact in bfloat16 and half float."""
LARGEST = 2.0**60
"""Weights beyond this are refused: their squared errors would leave float32."""
_SMALLEST_SCALE = 2.0**-126
_TOP = 15
_STEPS = (14.2, 14.4, 14.6, 14.8, 15.2, 15.4, 15.6, 15.8)


def require_encodable(values: np.ndarray, where: str) -> None:
    """Raises Refused q4nx.not_encodable for NaN, infinities and magnitudes above 2^60."""
    if not np.all(np.abs(values) <= LARGEST):
        raise Refused(
            Refusal(
                "q4nx.not_encodable",
                where,
                int(np.count_nonzero(~(np.abs(values) <= LARGEST))),
                "finite values of at most 2^60",
                "The tensor holds values that are no weights (not a number, infinite or absurdly large); "
                "mend the checkpoint before it is packed.",
            )
        )


def grouped(values: np.ndarray) -> np.ndarray:
    """[..., 32, 256] -> [..., 32, 8, 32]."""
    return values.reshape(*values.shape[:-1], GROUPS, GROUP)


def nearest_codes(x: np.ndarray, scales: np.ndarray, minimums: np.ndarray) -> np.ndarray:
    """Codes 0..15 as float32, nearest under weight = code x scale + minimum; x [..., 32], the others [...]."""
    codes = np.rint((x - minimums[..., None]) / scales[..., None])
    return np.clip(codes, 0, _TOP, out=codes)


def squared_error(x: np.ndarray, codes: np.ndarray, scales: np.ndarray, minimums: np.ndarray) -> np.ndarray:
    """Of the decoded values, per group."""
    off = codes * scales[..., None] + minimums[..., None] - x
    return np.einsum("...i,...i->...", off, off)


def bf16_lines(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and minimum of each group, float32 values that bfloat16 holds: x [..., 32] -> [...] twice."""
    low, high = x.min(-1), x.max(-1)
    best = _stored((high - low) / _TOP, low)
    error = squared_error(x, nearest_codes(x, *best), *best)
    for steps in _STEPS:
        pair = _stored(*_least_squares(x, _first_codes(x, low, high, steps)))
        found = squared_error(x, nearest_codes(x, *pair), *pair)
        better = found < error
        best = np.where(better, pair[0], best[0]), np.where(better, pair[1], best[1])
        error = np.minimum(found, error)
    return best


def lines_below_zero(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale (>= 0) and minimum (<= 0) of each group, not rounded: x [..., 32] -> [...] twice."""
    low, high = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    best = (high - low) / _TOP, low
    error = squared_error(x, nearest_codes(x, _positive(best[0]), low), *best)
    for steps in _STEPS:
        codes = _first_codes(x, low, high, steps)
        scales, minimums = _least_squares(x, codes)
        above = minimums > 0
        through_zero = np.einsum("...i,...i->...", x, codes) / np.maximum(np.einsum("...i,...i->...", codes, codes), 1)
        scales, minimums = np.where(above, through_zero, scales), np.where(above, np.float32(0), minimums)
        found = squared_error(x, nearest_codes(x, _positive(scales), minimums), scales, minimums)
        better = (found < error) & (scales > 0)
        best = np.where(better, scales, best[0]), np.where(better, minimums, best[1])
        error = np.where(better, found, error)
    return best


def super_blocks(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """S and M bits uint16 [..., 32], scales and mins uint8 [..., 32, 8] for x [..., 32, 8, 32].

    S is the largest group scale / 255, rounded up so that no u8 exceeds 255; three further bfloat16 values are tried
    and the smallest squared error of the row is kept. M likewise, negated.
    """
    scales, minimums = lines_below_zero(x)
    first = [_rounded_up(_positive(factor.max(-1) / 255)) for factor in (scales, -minimums)]
    best: tuple[np.ndarray, ...] = ()
    error = np.full(x.shape[:-2], np.inf, np.float32)
    for further in range(4):
        s_bits, m_bits = first[0] + np.uint16(further), first[1] + np.uint16(further)
        s, m = from_bf16(s_bits)[..., None], from_bf16(m_bits)[..., None]
        stored_scales = np.clip(np.rint(scales / s), 1, 255).astype(np.uint8)
        stored_mins = np.clip(np.rint(-minimums / m), 0, 255).astype(np.uint8)
        pair = s * stored_scales, -m * stored_mins
        found = squared_error(x, nearest_codes(x, *pair), *pair).sum(-1)
        better = found < error
        trial = (s_bits, m_bits | np.uint16(0x8000), stored_scales, stored_mins)
        best = tuple(
            np.where(better if new.ndim == better.ndim else better[..., None], new, old)
            for new, old in zip(trial, best or trial, strict=True)
        )
        error = np.minimum(found, error)
    return best[0], best[1], best[2], best[3]


def bf16_factors(x: np.ndarray) -> np.ndarray:
    """Scale of each group of signed bytes, |x| / 127 to nearest or up, whichever errs less: [..., 32] -> [...]."""
    exact = _positive(np.abs(x).max(-1) / 127)
    nearest, above = from_bf16(to_bf16(exact)), from_bf16(_rounded_up(exact))
    errors = []
    for scales in (nearest, above):
        off = np.clip(np.rint(x / scales[..., None]), -127, 127) * scales[..., None] - x
        errors.append(np.einsum("...i,...i->...", off, off))
    return np.where(errors[1] < errors[0], above, nearest)


def _first_codes(x: np.ndarray, low: np.ndarray, high: np.ndarray, steps: float) -> np.ndarray:
    return nearest_codes(x, _positive((high - low) / np.float32(steps)), low)


def _positive(scales: np.ndarray) -> np.ndarray:
    return np.where(scales >= _SMALLEST_SCALE, scales, np.float32(FLAT_SCALE))


def _stored(scales: np.ndarray, minimums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _positive(from_bf16(to_bf16(scales))), from_bf16(to_bf16(minimums))


def _rounded_up(positive: np.ndarray) -> np.ndarray:
    """uint16 bits of the smallest bfloat16 not below a positive float32."""
    return ((positive.view(np.uint32) + 0xFFFF) >> 16).astype(np.uint16)


def _least_squares(x: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The line x = code x scale + minimum; where all codes are equal, scale 0 and the mean."""
    total, squares = codes.sum(-1), np.einsum("...i,...i->...", codes, codes)
    sums, products = x.sum(-1), np.einsum("...i,...i->...", x, codes)
    spread = GROUP * squares - total * total
    slope = (GROUP * products - sums * total) / np.where(spread > 0, spread, 1)
    scales = np.where(spread > 0, slope, np.float32(0))
    return scales, (sums - scales * total) / GROUP


def padded(values: np.ndarray) -> np.ndarray:
    """[n, k] with zero columns up to a multiple of 256, as the vendor's converter pads."""
    missing = -values.shape[1] % COLUMNS
    return np.pad(values, ((0, 0), (0, missing))) if missing else values
