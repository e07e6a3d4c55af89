"""What the measured values say: tiles that are none, factors that are none, gains and weights that are not."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from draftmill.dflash.gate_bins import LARGEST_WEIGHT
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_order import Order, find_order
from draftmill.dflash.gate_packed import PackedStatistics
from draftmill.dflash.gate_plain import PlainStatistics
from draftmill.dflash.gate_table import HALF_ABOVE, HALF_NOT_FINITE, RATIO_BAND
from draftmill.dflash.inventory import Role
from draftmill.dflash.storage import Located
from draftmill.outcome import Refusal
from draftmill.q4nx.encodings import Kind, foreign_content

GAIN_BAND = (2.0**-5, 2.0**6)
"""Median magnitude of a norm's gains. Gains of 1 stored as half floats read 2^-7 as bfloat16."""
GAIN_SPREAD = 64.0
"""Ratio of the 90th to the 10th percentile of gains. Half floats read as bfloat16 spread over eight times the octaves;
gains that stay between 1.2 and 3 all over a norm cannot be told from half floats, whose bits they are."""
WEIGHT_BAND = (2.0**-20, 2.0**5)
"""90th percentile of the magnitudes of weights. Half floats of 2^-5 read 2^-47 as bfloat16."""

WEIGHT_SPREAD = 2.0**20
"""Ratio of the 90th to the 10th percentile of weights, where that is not zero. Normal weights have 13, of which their
half floats read as bfloat16 make the eighth power."""
SCALE_OUTLIER = 2.0**16
"""Largest scale of a tensor over its median scale."""

Packed = Mapping[str, tuple[Located, PackedStatistics]]
Plain = Mapping[str, tuple[Located, PlainStatistics]]


def check_packed(packed: Packed, where: str, ledger: Ledger) -> None:
    """Tiles first: of bytes that are none, scales and minimums say nothing."""
    tiles = {}
    halves = []
    for name, (located, statistics) in packed.items():
        place = f"{where}:{located.entry.name}"
        if statistics.all_zero:
            ledger.refuse("scales.positive", _all_zero("scales_positive", place))
            continue
        above, not_finite = statistics.half_shares
        halves.append((above, not_finite))
        if above < HALF_ABOVE and not_finite < HALF_NOT_FINITE:
            ledger.refuse(
                "packed.not_half_float",
                _refusal(
                    "half_float",
                    place,
                    {"above_100": round(above, 4), "not_finite": round(not_finite, 4)},
                    {"above_100": HALF_ABOVE, "not_finite": HALF_NOT_FINITE},
                    "Read as half floats its bytes are ordinary weights, so it is a plain matrix under the label of "
                    "tiles. Pack the draft again.",
                ),
            )
        elif foreign := _foreign(located, statistics, place):
            ledger.refuse("packed.not_legacy", foreign)
        else:
            tiles[name] = (located, statistics)
    if not halves:
        return
    least = min(halves)
    ledger.passes(
        "packed.not_half_float",
        {"above_100": round(least[0], 4), "not_finite": round(min(share for _, share in halves), 4)},
        f"as half floats at least {least[0]:.1%} of a tensor's values would be above 100, and "
        f"{max(share for _, share in halves):.1%} not finite: {len(halves)} tensors are no half-float matrices",
    )
    ledger.passes("packed.not_legacy", len(tiles), f"{len(tiles)} tensors have unsigned codes and minimums")
    if tiles:
        _check_factors(tiles, where, ledger)


def _foreign(located: Located, statistics: PackedStatistics, place: str) -> Refusal | None:
    if located.encoding is None or located.encoding.kind != Kind.Q4_1:
        return None
    with np.errstate(invalid="ignore"):
        refusal = foreign_content(located.encoding, statistics.sample, place)
    signed = refusal is not None and refusal.code == "q4nx.legacy_signed"
    return None if signed and not statistics.all_minimums_zero else refusal


def _check_factors(tiles: Packed, where: str, ledger: Ledger) -> None:
    groups = sum(statistics.groups for _, statistics in tiles.values())
    dead = 0
    medians = {}
    for name, (located, statistics) in tiles.items():
        place = f"{where}:{located.entry.name}"
        for check, what, count in (
            ("scales.finite", "scales_not_finite", statistics.scales_not_finite),
            ("minimums.finite", "minimums_not_finite", statistics.minimums_not_finite),
        ):
            if count:
                ledger.refuse(check, _bad_groups(check, place, count, statistics.first_bad[what], "not finite"))
        zero, first = statistics.scales_not_positive, statistics.first_bad.get("scales_not_positive")
        if located.expected.role == Role.CODEBOOK:
            dead += statistics.dead
        elif statistics.dead:
            zero, first = zero + statistics.dead, first or statistics.first_bad["dead"]
        if zero and first:
            ledger.refuse("scales.positive", _bad_groups("scales.positive", place, zero, first, "zero or negative"))
        if refusal := _implausible(statistics, place):
            ledger.refuse("packed.magnitude", refusal)
        medians[name] = statistics.ratio_median
        if not RATIO_BAND[0] <= statistics.ratio_median <= RATIO_BAND[1]:
            ledger.refuse(
                "minimums.band",
                _refusal(
                    "ratio",
                    place,
                    round(statistics.ratio_median, 2),
                    list(RATIO_BAND),
                    "The median of minimum / scale is not that of weights around zero: the tensor is in another "
                    "form than its label says, or damaged. Download it again, or pack the draft again.",
                ),
            )
    unused = f", {dead:,} of them of unused rows of codebooks" if dead else ""
    ledger.passes("scales.finite", groups, f"every scale of {groups:,} groups is finite")
    ledger.passes("scales.positive", groups, f"every scale of {groups:,} groups is positive{unused}")
    ledger.passes("minimums.finite", groups, f"every minimum of {groups:,} groups is finite")
    largest = max(statistics.largest_scale for _, statistics in tiles.values())
    ledger.passes("packed.magnitude", largest, f"every weight is within 2^16; the largest scale is {largest:.3g}")
    low, high = min(medians.values()), max(medians.values())
    ledger.passes(
        "minimums.band", [round(low, 2), round(high, 2)], f"median of minimum/scale {low:.2f} .. {high:.2f} per tensor"
    )


def _implausible(statistics: PackedStatistics, place: str) -> Refusal | None:
    """Single groups first, then the whole: about 8 scales reach as far as most weights around zero."""
    median, largest = statistics.scale_median, statistics.largest_scale
    measured: dict[str, float] = {"groups": statistics.too_large, "largest_scale": largest, "scale_median": median}
    if statistics.too_large:
        row, column = statistics.first_bad["too_large"]
        said = f"{statistics.too_large} groups decode to weights above {LARGEST_WEIGHT:.0f} or to infinity, the first "
    elif largest > SCALE_OUTLIER * median > 0:
        row, column = statistics.first_bad["largest_scale"]
        said = f"One scale is {largest:.3g}, {largest / median:.3g} times the median, that "
    elif median and not WEIGHT_BAND[0] <= 8 * median <= WEIGHT_BAND[1]:
        return _refusal(
            "magnitude",
            place,
            measured,
            list(WEIGHT_BAND),
            f"Half of its scales are around {median:.3g}, so its weights are near {8 * median:.3g}, which is no size "
            "of a weight. Download the package again, or take the draft from its publisher again.",
        )
    else:
        return None
    return _refusal(
        "magnitude",
        place,
        measured,
        LARGEST_WEIGHT,
        f"{said}of row {row} from column {column} on: damage. Download the package again, or pack the draft again.",
    )


def _all_zero(code: str, place: str) -> Refusal:
    return _refusal(
        code,
        place,
        "all zero",
        "weights",
        "Every one of its weights is zero, so it computes nothing: it was never trained, or lost when it was saved. "
        "Take the draft from its publisher again.",
    )


def _too_large(code: str, place: str, statistics: PlainStatistics) -> Refusal:
    return _refusal(
        code,
        place,
        statistics.too_large,
        0,
        f"{statistics.too_large} values are above {LARGEST_WEIGHT:.0f} in magnitude, the first at "
        f"{statistics.first_large}; no weight or gain is. Download the package again.",
    )


def _bad_size(code: str, place: str, statistics: PlainStatistics) -> Refusal | None:
    """What is wrong with the size of values in any label."""
    if statistics.all_zero:
        return _all_zero(code, place)
    return _too_large(code, place, statistics) if statistics.too_large else None


def _bad_groups(check: str, place: str, count: int, first: list[int], what: str) -> Refusal:
    kind = check.partition(".")[0]
    return _refusal(
        check.replace(".", "_"),
        place,
        count,
        0,
        f"{count} {kind} are {what}, the first of row {first[0]} from column {first[1]} on; every weight of "
        "these groups would be wrong. Download the package again, or pack the draft again.",
    )


def check_plain(plain: Plain, where: str, ledger: Ledger) -> None:
    """Norms, a plain fusion matrix, base kernels and plain codebooks."""
    by_role: dict[Role, list[tuple[Located, PlainStatistics]]] = {}
    for located, statistics in plain.values():
        by_role.setdefault(located.expected.role, []).append((located, statistics))
    _check_norms(by_role.get(Role.NORM, []), where, ledger)
    if fusion := by_role.get(Role.FUSION):
        _check_fusion(*fusion[0], where, ledger)
    _check_weights("conv.kernels", by_role.get(Role.CONV_KERNEL, []), where, ledger)
    codebooks = by_role.get(Role.CODEBOOK, [])
    if codebooks:
        _check_weights("codebooks.values", codebooks, where, ledger)


def _check_norms(norms: list[tuple[Located, PlainStatistics]], where: str, ledger: Ledger) -> None:
    finite = []
    for located, statistics in norms:
        place = f"{where}:{located.entry.name}"
        if statistics.not_finite:
            ledger.refuse("norms.finite", _not_finite("norms_finite", place, statistics))
        else:
            finite.append((located, statistics))
        if refusal := _bad_size("norms_bfloat16", place, statistics):
            ledger.refuse("norms.bfloat16", refusal)
        elif statistics.dtype == "BF16" and not _plausible_gains(statistics):
            ledger.refuse("norms.bfloat16", _half(place, "norms_bfloat16", statistics, GAIN_BAND, 0.5))
    if not norms:
        return
    negative = sum(statistics.negative for _, statistics in norms)
    flat = [located.expected.name for located, statistics in norms if _flat(statistics)]
    said = f", {negative} gains are negative" if negative else ""
    said += f"; all gains of {', '.join(flat[:4])} are one value" if flat else ""
    ledger.passes("norms.finite", {"norms": len(finite), "negative": negative}, f"{len(finite)} norms are finite{said}")
    medians = [statistics.magnitude(0.5) for _, statistics in norms]
    halves = [statistics.magnitude(0.5, half=True) for _, statistics in norms if statistics.dtype == "BF16"]
    labels = sorted({statistics.dtype for _, statistics in norms})
    folded = f"; as half floats they would lie in {min(halves):.3g} .. {max(halves):.3g}" if halves else ""
    ledger.passes(
        "norms.bfloat16",
        [min(medians), max(medians)],
        f"{', '.join(labels)}: median magnitudes {min(medians):.3g} .. {max(medians):.3g}{folded}",
    )


def _flat(statistics: PlainStatistics) -> bool:
    return bool(len(statistics.head)) and bool((statistics.head == statistics.head[0]).all())


def _check_fusion(located: Located, statistics: PlainStatistics, where: str, ledger: Ledger) -> None:
    place = f"{where}:{located.entry.name}"
    if statistics.not_finite:
        ledger.refuse("fusion.finite", _not_finite("fusion_finite", place, statistics))
    ledger.passes("fusion.finite", statistics.count, f"{statistics.count:,} values are finite", place)
    if refusal := _bad_size("fusion_bfloat16", place, statistics):
        ledger.refuse("fusion.bfloat16", refusal)
        if statistics.all_zero:
            return
    elif not _plausible_weights(statistics):
        # Of the order of other values nothing can be told.
        ledger.refuse("fusion.bfloat16", _half(place, "fusion_bfloat16", statistics, WEIGHT_BAND, 0.9))
        return
    large = statistics.magnitude(0.9)
    folded = statistics.magnitude(0.9, half=True)
    ledger.passes(
        "fusion.bfloat16", large, f"90 % of magnitudes below {large:.3g}; as half floats below {folded:.3g}", place
    )
    found = find_order(statistics.head, located.expected.shape[1])
    if found is None:
        ledger.undetermined(
            "fusion.order",
            None,
            "too few blocks with weights for an order to show; the shape states it",
            withholds=False,
        )
        return
    measured = {
        "declared": found.declared.as_json(),
        "row_major": found.row_major.as_json(),
        "same_column": [round(value, 4) if math.isfinite(value) else None for value in found.same_column],
        "noise": round(found.noise, 4),
    }
    figures = f"as declared: {found.declared}; as row-major: {found.row_major}"
    match found.order:
        case Order.DECLARED:
            ledger.passes("fusion.order", measured, figures, place)
        case Order.ROW_MAJOR:
            ledger.refuse(
                "fusion.order",
                _refusal(
                    "fusion_order",
                    place,
                    measured,
                    "consistent neighbours in the declared order",
                    "The values do not lie in the declared order [N/32, K, 32] but row-major; every "
                    f"context row would be noise. Pack the draft again. Correlations {figures}.",
                ),
            )
        case Order.OTHER:
            near, half, far = found.same_column
            ledger.refuse(
                "fusion.order",
                _refusal(
                    "fusion_order",
                    place,
                    measured,
                    "one correlation within a column",
                    "The values do not lie in the declared order [N/32, K, 32]: what it puts into one column "
                    f"correlates by {near:.3f}, {half:.3f} and {far:.3f} at 1, 16 and 32 rows apart, and in one "
                    "column all three are alike. Pack the draft again.",
                ),
            )
        case Order.UNDETERMINED:
            said = f"the data cannot tell the order, and the shape states it: {figures}"
            ledger.undetermined("fusion.order", measured, said, withholds=False)


def _check_weights(check: str, found: list[tuple[Located, PlainStatistics]], where: str, ledger: Ledger) -> None:
    code = check.replace(".", "_")
    for located, statistics in found:
        place = f"{where}:{located.entry.name}"
        if statistics.not_finite:
            ledger.refuse(check, _not_finite(code, place, statistics))
        elif refusal := _bad_size(code, place, statistics):
            ledger.refuse(check, refusal)
        elif statistics.dtype == "BF16" and not _plausible_weights(statistics):
            ledger.refuse(check, _half(place, code, statistics, WEIGHT_BAND, 0.9))
    if found:
        large = [statistics.magnitude(0.9) for _, statistics in found]
        ledger.passes(
            check,
            [min(large), max(large)],
            f"{len(found)} tensors are finite, 90 % of magnitudes below {min(large):.3g} .. {max(large):.3g}",
        )


def _plausible_gains(statistics: PlainStatistics) -> bool:
    low, middle, high = (statistics.magnitude(share) for share in (0.1, 0.5, 0.9))
    return GAIN_BAND[0] <= middle <= GAIN_BAND[1] and high <= GAIN_SPREAD * low


def _plausible_weights(statistics: PlainStatistics) -> bool:
    low, high = statistics.magnitude(0.1), statistics.magnitude(0.9)
    return WEIGHT_BAND[0] <= high <= WEIGHT_BAND[1] and (low == 0 or high <= WEIGHT_SPREAD * low)


def _not_finite(code: str, place: str, statistics: PlainStatistics) -> Refusal:
    return _refusal(
        code,
        place,
        statistics.not_finite,
        0,
        f"{statistics.not_finite} values are not finite, the first at {statistics.first_bad}; nothing that is computed "
        "with them is. Download the package again.",
    )


def _half(place: str, code: str, statistics: PlainStatistics, band: tuple[float, float], share: float) -> Refusal:
    plain, half = statistics.magnitude(share), statistics.magnitude(share, half=True)
    return _refusal(
        code,
        place,
        plain,
        list(band),
        f"As bfloat16 {share:.0%} of the magnitudes lie below {plain:.3g}, as half floats below {half:.3g}: these are "
        "half floats under a wrong label, or damaged. Pack the draft again.",
    )


def _refusal(code: str, place: str, measured: Any, expected: Any, sentence: str) -> Refusal:
    return Refusal(f"gate.{code}", place, measured, expected, sentence)
