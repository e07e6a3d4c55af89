"""What is wrong with tiles that were decoded whole: single groups of 32 weights, and tiles that no weights give.

Thresholds come from every tensor of a trained draft and of layers of SmolLM2-135M in q4_1 and Q4_K (7,700 tiles of
each): per tile the median of minimum/scale lies in -8.9 .. -6.9 and at most 5 % of the codes are zero; per group
minimum/scale is nowhere beyond 14.4 in magnitude.
"""

import numpy as np

from draftmill.dflash.gate_bins import LARGEST_WEIGHT
from draftmill.q4nx.encodings import CODECS, Kind
from draftmill.q4nx.fitting import FLAT_SCALE, grouped
from draftmill.q4nx.tiles import GROUP, Workspace

TILE_RATIO_BAND = (-11.0, -4.5)
"""Median of minimum / scale of one tile; halved minimums give -3.7, none 0."""
LARGEST_RATIO = 64.0
"""|minimum| / scale of a group: beyond it 32 weights would differ by less than a quarter of their mean. A scale that
lost a bit of its exponent has 2^4 or more times the ordinary 7.5."""
ZERO_CODES = 0.25
"""Share of zero codes in a tile."""
ENOUGH_GROUPS = 32
"""Groups with weights from which on a tile is judged as a whole."""


def find_faults(kind: Kind, chunks: np.ndarray, padded: np.ndarray, mixed: np.ndarray) -> dict[str, np.ndarray]:
    """Chunks [t, bytes] -> name of a fault -> bool [t, 32 rows, 8 groups], or [t, 1, 1] where it is the whole tile's.

    padded, mixed: bool [t, 1, 8], groups that lie in padding, and in part at least; the first only count as not
    finite, and codes of neither are judged.

    Of groups: scales_not_finite, minimums_not_finite, scales_not_positive, dead (both factors zero), too_large,
    too_small (the scale, beside its minimum), one_code. Of tiles: signed, odd_ratio, odd_codes.
    """
    codec = CODECS[kind]
    scales, minimums = codec.groups(chunks)
    assert minimums is not None  # noqa: S101 - of Q8 only, which no draft is stored in
    codes = grouped(codec.codes(chunks, Workspace()))
    zeros = (codes == 0).view(np.uint8) @ np.ones(GROUP, np.uint8)
    known = np.isfinite(scales)
    whole = known & np.isfinite(minimums) & ~padded
    zero = ~(scales > 0) & known & ~padded
    dead = zero & (scales == 0) & (minimums == 0)
    # Other writers give groups without weights any scale.
    live = whole & ~mixed & (scales > FLAT_SCALE) & ~((minimums == 0) & (zeros == GROUP))
    count = _of_tile(live)
    enough = count >= ENOUGH_GROUPS
    signed = enough & (_of_tile(live & (minimums == 0)) == count) & (kind == Kind.Q4_1)
    with np.errstate(all="ignore"):
        reach = np.fmax(np.abs(minimums), np.abs(np.float32(15) * scales + minimums))
        lost = np.abs(minimums) > LARGEST_RATIO * scales
        below, above = minimums < TILE_RATIO_BAND[0] * scales, minimums > TILE_RATIO_BAND[1] * scales
    odd = (2 * _of_tile(live & below) > count) | (2 * _of_tile(live & above) > count)
    return {
        "scales_not_finite": ~known,
        "minimums_not_finite": ~np.isfinite(minimums),
        "scales_not_positive": zero & ~dead,
        "dead": dead,
        "too_large": whole & (reach > LARGEST_WEIGHT),
        "too_small": whole & (scales > 0) & lost & ~((scales == FLAT_SCALE) & (zeros == GROUP)),
        "one_code": live & (codes.min(-1) == codes.max(-1)),
        "signed": signed,
        "odd_ratio": enough & odd & ~signed,
        "odd_codes": enough & (_of_tile(np.where(live, zeros, 0)) > ZERO_CODES * GROUP * count),
    }


def _of_tile(groups: np.ndarray) -> np.ndarray:
    """Sums [t, 1, 1] over the groups of each tile."""
    return groups.sum((1, 2), dtype=np.int64, keepdims=True)
