"""What the measured values of tiles say: tiles that are none, factors and codes that are not weights'."""

from collections.abc import Mapping
from typing import Any

from draftmill.dflash.gate_bins import LARGEST_WEIGHT
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_packed import PackedStatistics
from draftmill.dflash.gate_table import HALF_ABOVE, HALF_NOT_FINITE, RATIO_BAND
from draftmill.dflash.gate_tile_faults import LARGEST_RATIO, TILE_RATIO_BAND, ZERO_CODES
from draftmill.dflash.inventory import Role
from draftmill.dflash.storage import Located
from draftmill.outcome import Refusal
from draftmill.q4nx.encodings import Kind, foreign_content

WEIGHT_BAND = (2.0**-20, 2.0**5)
"""90th percentile of the magnitudes of weights. Half floats of 2^-5 read 2^-47 as bfloat16."""
SCALE_OUTLIER = 2.0**16
"""Largest scale of a tensor over its median scale."""
ODD_TILES = 1 / 32
"""Share of tiles whose median of minimum / scale may lie outside `TILE_RATIO_BAND`. Real tensors have none."""

Packed = Mapping[str, tuple[Located, PackedStatistics]]
AGAIN = "Download the package again, or pack the draft again."


def check_packed(packed: Packed, where: str, ledger: Ledger) -> Packed:
    """Tiles first: of bytes that are none, scales and minimums say nothing. Returns those that are tiles."""
    tiles = {}
    halves = []
    for name, (located, statistics) in packed.items():
        place = f"{where}:{located.entry.name}"
        if statistics.all_zero:
            ledger.refuse("scales.positive", all_zero("scales_positive", place))
            continue
        above, not_finite = statistics.half_shares
        halves.append((above, not_finite))
        if above < HALF_ABOVE and not_finite < HALF_NOT_FINITE:
            ledger.refuse(
                "packed.not_half_float",
                refusal(
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
        return tiles
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
        _check_codes(tiles, where, ledger)
    return tiles


def _foreign(located: Located, statistics: PackedStatistics, place: str) -> Refusal | None:
    if located.encoding is None or located.encoding.kind != Kind.Q4_1:
        return None
    found = foreign_content(located.encoding, statistics.sample, place)
    if found is not None and (found.code != "q4nx.legacy_signed" or statistics.all_minimums_zero):
        return found
    if count := statistics.faults["signed"]:
        row, column = statistics.first_bad["signed"]
        return refusal(
            "legacy_signed",
            place,
            count,
            0,
            f"{count} of {statistics.tiles} tiles have no minimum, the first at row {row} and column {column}: their "
            "codes are signed, as older packages have them, or their minimums were lost. Pack the draft again.",
        )
    return None


def _check_factors(tiles: Packed, where: str, ledger: Ledger) -> None:
    groups = sum(statistics.groups for _, statistics in tiles.values())
    dead = 0
    medians = {}
    for name, (located, statistics) in tiles.items():
        place = f"{where}:{located.entry.name}"
        faults = statistics.faults
        for check, what in (("scales.finite", "scales_not_finite"), ("minimums.finite", "minimums_not_finite")):
            if faults[what]:
                ledger.refuse(check, _bad_groups(check, place, faults[what], statistics.first_bad[what], "not finite"))
        zero, first = faults["scales_not_positive"], statistics.first_bad.get("scales_not_positive")
        if located.expected.role == Role.CODEBOOK:
            dead += faults["dead"]
        elif faults["dead"]:
            zero, first = zero + faults["dead"], first or statistics.first_bad["dead"]
        if zero and first:
            ledger.refuse("scales.positive", _bad_groups("scales.positive", place, zero, first, "zero or negative"))
        if found := _implausible(statistics, place):
            ledger.refuse("packed.magnitude", found)
        medians[name] = statistics.ratio_median
        if found := _odd_ratio(statistics, place):
            ledger.refuse("minimums.band", found)
    unused = f", {dead:,} of them of unused rows of codebooks" if dead else ""
    ledger.passes("scales.finite", groups, f"every scale of {groups:,} groups is finite")
    ledger.passes("scales.positive", groups, f"every scale of {groups:,} groups is positive{unused}")
    ledger.passes("minimums.finite", groups, f"every minimum of {groups:,} groups is finite")
    largest = max(statistics.largest_scale for _, statistics in tiles.values())
    ledger.passes(
        "packed.magnitude",
        largest,
        f"every weight is within 2^16, no minimum beyond {LARGEST_RATIO:.0f} scales; largest scale {largest:.3g}",
    )
    low, high = min(medians.values()), max(medians.values())
    odd = sum(statistics.faults["odd_ratio"] for _, statistics in tiles.values())
    ledger.passes(
        "minimums.band",
        [round(low, 2), round(high, 2)],
        f"median of minimum/scale {low:.2f} .. {high:.2f} per tensor; {odd} tiles outside "
        f"{TILE_RATIO_BAND[0]} .. {TILE_RATIO_BAND[1]}",
    )


def _odd_ratio(statistics: PackedStatistics, place: str) -> Refusal | None:
    if not RATIO_BAND[0] <= statistics.ratio_median <= RATIO_BAND[1]:
        return refusal(
            "ratio",
            place,
            round(statistics.ratio_median, 2),
            list(RATIO_BAND),
            "The median of minimum / scale is not that of weights around zero: the tensor is in another "
            "form than its label says, or damaged. Download it again, or pack the draft again.",
        )
    odd = statistics.faults["odd_ratio"]
    if odd <= ODD_TILES * statistics.tiles:
        return None
    row, column = statistics.first_bad["odd_ratio"]
    return refusal(
        "ratio_in_tiles",
        place,
        odd,
        list(TILE_RATIO_BAND),
        f"In {odd} of {statistics.tiles} tiles, the first at row {row} and column {column}, the median of minimum / "
        f"scale is not that of weights around zero: a part of the tensor is damaged. {AGAIN}",
    )


def _check_codes(tiles: Packed, where: str, ledger: Ledger) -> None:
    for located, statistics in tiles.values():
        for fault, said in (
            ("one_code", "groups have one code for all their 32 weights, under a scale that says they differ"),
            ("odd_codes", f"tiles have more than {ZERO_CODES:.0%} zero codes, where weights have about 4 %"),
        ):
            if count := statistics.faults[fault]:
                row, column = statistics.first_bad[fault]
                ledger.refuse(
                    "packed.codes",
                    refusal(
                        fault,
                        f"{where}:{located.entry.name}",
                        count,
                        0,
                        f"{count} {said}, the first at row {row} and column {column}: codes were lost. {AGAIN}",
                    ),
                )
    count = sum(statistics.tiles for _, statistics in tiles.values())
    said = f"of {count:,} tiles none has codes that are all one, or more than {ZERO_CODES:.0%} zeros"
    ledger.passes("packed.codes", count, said)


def _implausible(statistics: PackedStatistics, place: str) -> Refusal | None:
    """Single groups first, then the whole: about 8 scales reach as far as most weights around zero."""
    median, largest = statistics.scale_median, statistics.largest_scale
    large, small = statistics.faults["too_large"], statistics.faults["too_small"]
    measured: dict[str, float] = {
        "groups": large + small,
        "largest_scale": largest,
        "scale_median": median,
    }
    if large:
        row, column = statistics.first_bad["too_large"]
        said = f"{large} groups decode to weights above {LARGEST_WEIGHT:.0f} or to infinity, the first "
    elif largest > SCALE_OUTLIER * median > 0:
        row, column = statistics.first_bad["largest_scale"]
        said = f"One scale is {largest:.3g}, {largest / median:.3g} times the median, that "
    elif small:
        row, column = statistics.first_bad["too_small"]
        said = (
            f"{small} scales are less than 1/{LARGEST_RATIO:.0f} of their minimum, so that 32 weights would be all but "
            "one value, the first "
        )
    elif median and not WEIGHT_BAND[0] <= 8 * median <= WEIGHT_BAND[1]:
        return refusal(
            "magnitude",
            place,
            measured,
            list(WEIGHT_BAND),
            f"Half of its scales are around {median:.3g}, so its weights are near {8 * median:.3g}, which is no size "
            "of a weight. Download the package again, or take the draft from its publisher again.",
        )
    else:
        return None
    return refusal(
        "magnitude", place, measured, LARGEST_WEIGHT, f"{said}of row {row} from column {column} on: damage. {AGAIN}"
    )


def all_zero(code: str, place: str) -> Refusal:
    """Nothing but zeros."""
    return refusal(
        code,
        place,
        "all zero",
        "weights",
        "Every one of its weights is zero, so it computes nothing: it was never trained, or lost when it was saved. "
        "Take the draft from its publisher again.",
    )


def _bad_groups(check: str, place: str, count: int, first: list[int], what: str) -> Refusal:
    kind = check.partition(".")[0]
    return refusal(
        check.replace(".", "_"),
        place,
        count,
        0,
        f"{count} {kind} are {what}, the first of row {first[0]} from column {first[1]} on; every weight of "
        f"these groups would be wrong. {AGAIN}",
    )


def refusal(code: str, place: str, measured: Any, expected: Any, sentence: str) -> Refusal:
    return Refusal(f"gate.{code}", place, measured, expected, sentence)
