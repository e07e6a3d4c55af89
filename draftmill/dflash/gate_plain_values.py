"""What the measured plain values say: norms, a plain fusion matrix, base kernels and plain codebooks."""

from collections.abc import Mapping

from draftmill.dflash.gate_bins import LARGEST_WEIGHT
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_order import DECLARED, Order
from draftmill.dflash.gate_plain import PlainStatistics
from draftmill.dflash.gate_values import WEIGHT_BAND, all_zero, refusal
from draftmill.dflash.inventory import Role
from draftmill.dflash.storage import Located
from draftmill.outcome import Refusal

GAIN_BAND = (2.0**-5, 2.0**6)
"""Median magnitude of a norm's gains. Gains of 1 stored as half floats read 2^-7 as bfloat16."""
GAIN_SPREAD = 64.0
"""Ratio of the 90th to the 10th percentile of gains. Half floats read as bfloat16 spread over eight times the octaves;
gains that stay between 1.2 and 3 all over a norm cannot be told from half floats, whose bits they are."""
WEIGHT_SPREAD = 2.0**20
"""Ratio of the 90th to the 10th percentile of weights that are not zero. Normal weights have 13, of which their
half floats read as bfloat16 make the eighth power."""
MOST_TINY = 0.01
"""Share of weights other than zero that may lie more than 24 octaves below the 90th percentile. Of normal weights one
in ten million does, of half floats read as bfloat16 nearly all do."""

PLAIN_ROLES = (Role.PROJECTION, Role.CONV_PROJECTION, Role.SELECTOR)

Plain = Mapping[str, tuple[Located, PlainStatistics]]


def check_plain(plain: Plain, generation: int | None, where: str, ledger: Ledger) -> None:
    """Norms, plain matrices, base kernels and plain codebooks."""
    by_role: dict[Role, list[tuple[Located, PlainStatistics]]] = {}
    for located, statistics in plain.values():
        by_role.setdefault(located.expected.role, []).append((located, statistics))
    _check_norms(by_role.get(Role.NORM, []), where, ledger)
    fusion = by_role.get(Role.FUSION, [])
    if fusion and generation == 1:
        _check_fusion(*fusion[0], where, ledger)
    matrices = [each for role in PLAIN_ROLES for each in by_role.get(role, [])]
    _check_weights("matrices.values", matrices + (fusion if generation == 2 else []), where, ledger)
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
    _check_order(statistics, place, ledger)


def _check_order(statistics: PlainStatistics, place: str, ledger: Ledger) -> None:
    found = statistics.ordered
    if found is None:
        said = "too few blocks with weights for an order to show; the shape states it"
        ledger.undetermined("fusion.order", None, said, withholds=False)
    elif found.order == Order.DECLARED:
        ledger.passes("fusion.order", found.as_json(), str(found), place)
    elif found.order == Order.UNDETERMINED:
        said = f"the data cannot tell the order, and the shape states it: {found}"
        ledger.undetermined("fusion.order", found.as_json(), said, withholds=False)
    else:
        declared = found.named == DECLARED
        fits = "but mixed, since what it makes a column does not hold together" if declared else f"but {found.named}"
        ledger.refuse(
            "fusion.order",
            refusal(
                "fusion_order",
                place,
                found.as_json(),
                "columns that hold together in the declared order",
                f"The values do not lie in the declared order [N/32, K, 32] {fits}; every context row would be noise. "
                f"Pack the draft again. In figures: {found}.",
            ),
        )


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
    low, high = (statistics.magnitude(share, zeros=False) for share in (0.1, 0.9))
    spread = high <= WEIGHT_SPREAD * low and statistics.tiny_share <= MOST_TINY
    return spread and WEIGHT_BAND[0] <= high <= WEIGHT_BAND[1]


def _not_finite(code: str, place: str, statistics: PlainStatistics) -> Refusal:
    return refusal(
        code,
        place,
        statistics.not_finite,
        0,
        f"{statistics.not_finite} values are not finite, the first at {statistics.first_bad}; nothing that is computed "
        "with them is. Download the package again.",
    )


def _half(place: str, code: str, statistics: PlainStatistics, band: tuple[float, float], share: float) -> Refusal:
    plain, half = statistics.magnitude(share), statistics.magnitude(share, half=True)
    return refusal(
        code,
        place,
        plain,
        list(band),
        f"As bfloat16 {share:.0%} of the magnitudes lie below {plain:.3g}, as half floats below {half:.3g}: these are "
        "half floats under a wrong label, or damaged. Pack the draft again.",
    )


def _too_large(code: str, place: str, statistics: PlainStatistics) -> Refusal:
    return refusal(
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
        return all_zero(code, place)
    return _too_large(code, place, statistics) if statistics.too_large else None
