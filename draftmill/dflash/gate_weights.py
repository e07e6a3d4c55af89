"""Whether the matrices are whole and stand in the container once: parts that are missing, and weights met twice."""

from typing import Any

from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_packed import PackedStatistics
from draftmill.dflash.gate_plain import PlainStatistics
from draftmill.dflash.gate_plain_values import Plain
from draftmill.dflash.gate_repeats import find_repeats
from draftmill.dflash.gate_values import AGAIN, Packed, refusal
from draftmill.dflash.inventory import Role
from draftmill.dflash.storage import Located
from draftmill.outcome import Refusal

WITHOUT_WEIGHTS = {Role.CODEBOOK: 0.5}
MOST_WITHOUT_WEIGHTS = 0.25
"""Share of a matrix that may be zero. Unused rows and widths rounded up are zero, and of a codebook also the rows of
tokens that no one met in training."""
LONGEST_RUN = 2048
"""Bytes of a plain matrix through which one value goes on: half a page, so that a lost page shows wherever it was cut.
It is 32 columns of a block of the fusion matrix."""
STANDS_TWICE = {Role.CODEBOOK: 0.5}
MOST_STANDS_TWICE = 1 / 64
"""Share of a matrix that may stand elsewhere too. Rows of a codebook that were never trained may be alike."""
MATRICES = (Role.PROJECTION, Role.FUSION, Role.CONV_PROJECTION, Role.SELECTOR, Role.CODEBOOK)


def check_weights(packed: Packed, plain: Plain, where: str, ledger: Ledger) -> None:
    """Of every matrix that is what its label says: is it whole, and does it stand there once?"""
    matrices: dict[str, tuple[Located, PackedStatistics | PlainStatistics]] = dict(packed)
    matrices |= {
        name: each for name, each in plain.items() if each[0].expected.role in MATRICES and not each[1].all_zero
    }
    if not matrices:
        return
    repeats = find_repeats({name: statistics.prints for name, (_, statistics) in matrices.items()})
    for name, (located, statistics) in matrices.items():
        place, role = f"{where}:{located.entry.name}", located.expected.role
        if found := _not_whole(located, statistics, place):
            ledger.refuse("weights.whole", found)
        elif name in repeats and repeats[name].share > STANDS_TWICE.get(role, MOST_STANDS_TWICE):
            partner = matrices[repeats[name].partner][0].entry.name
            elsewhere = "itself" if repeats[name].partner == name else partner
            ledger.refuse(
                "weights.distinct",
                refusal(
                    "stands_twice",
                    place,
                    round(repeats[name].share, 4),
                    STANDS_TWICE.get(role, MOST_STANDS_TWICE),
                    f"{repeats[name].share:.1%} of it stands a second time, value for value, in {elsewhere}: one was "
                    f"written in place of the other. {AGAIN}",
                ),
            )
    most = max(_without_weights(statistics) for _, statistics in matrices.values())
    ledger.passes(
        "weights.whole", round(most, 4), f"{len(matrices)} matrices, at most {most:.1%} of one without weights"
    )
    twice = max((each.share for each in repeats.values()), default=0.0)
    said = (
        f"{len(matrices)} matrices, at most {twice:.1%} of one stands a second time"
        if twice
        else "nothing stands twice"
    )
    ledger.passes("weights.distinct", round(twice, 4), said)


def _without_weights(statistics: PackedStatistics | PlainStatistics) -> float:
    return statistics.dead_share if isinstance(statistics, PackedStatistics) else statistics.zero_share


def _not_whole(located: Located, statistics: PackedStatistics | PlainStatistics, place: str) -> Refusal | None:
    role, share = located.expected.role, _without_weights(statistics)
    most = WITHOUT_WEIGHTS.get(role, MOST_WITHOUT_WEIGHTS)
    if share > most:
        measured: Any = round(share, 4)
        said = f"{share:.0%} of its weights are zero"
    elif role == Role.FUSION and isinstance(statistics, PackedStatistics) and statistics.dead_columns:
        measured = most = statistics.dead_columns
        said = f"{measured} times 256 neighbouring columns have no weight in any row, so a tapped layer is not heard"
    elif role == Role.FUSION and isinstance(statistics, PlainStatistics) and statistics.longest_run >= LONGEST_RUN:
        measured, most = statistics.longest_run, LONGEST_RUN
        said = f"one value goes on through {measured} bytes, from value {statistics.run_at} on"
    else:
        return None
    return refusal("not_whole", place, measured, most, f"{said}: a part of the matrix is missing. {AGAIN}")
