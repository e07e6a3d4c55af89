"""What paired samples of two arms say about their speed, and when they say nothing.

With pairs i = 0..n-1 measured in this order and r_i = (target alone's seconds) / (target + draft's seconds):

centre    m = median r_i: one disturbed pair does not move it, and a slow hour slows both arms of a pair
interval  of the median, by order statistics: [r_(k), r_(n+1-k)] with 1 <= k, the largest for which
          2 P(Binomial(n, 1/2) < k) <= 1 - level. It holds the median with at least `level` for any distribution, and
          decides. The percentile bootstrap over pairs (seeded) is reported beside it and does not decide: of a median
          it covers 92 to 94 % at 6 to 20 pairs where 95 % are asked for
spread    MAD = median |r_i - m|
drift     Theil-Sen slope, the median of (r_j - r_i) / (j - i) over i < j; its p-value is (1 + c) / (1 + N), c of N
          seeded permutations having at least the |Spearman correlation| of r with i
settles   an interval's width shrinks as 1/sqrt(n). In logarithms, with the half-widths a = log m - log low and
          b = log high - log m at n pairs, a distance d is reached by a half-width h at n (h / d)^2 pairs: the sign is
          settled when the side towards 1 is within |log m|, no difference when both sides are within the margin
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, floor, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftmill.outcome import Refusal, Refused

Series = Sequence[float] | NDArray[np.float64]
Word = Literal["faster", "slower", "no difference", "no verdict"]
Reason = Literal["too few pairs", "machine too busy", "drift", "interval too wide"]


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Drift:
    """slope: change from one pair to the next (Theil-Sen). correlation: Spearman's, of the values with their index; 0
    where all are equal. p: how often chance orders the values as strongly."""

    slope: float
    correlation: float
    p: float


@dataclass(frozen=True)
class WarmUp:
    """discarded: the first samples. relative: each of them / the median of kept, so 1 is no warm-up at all."""

    discarded: tuple[float, ...]
    kept: tuple[float, ...]
    relative: tuple[float, ...]


@dataclass(frozen=True)
class Rule:
    """What a verdict needs; it is reported with the verdict.

    level: of the interval. margin: ratios within 1 / (1 + margin) .. 1 + margin count as no difference. drift_p: a
    drift with a smaller p-value forbids a verdict. waiting: the largest share of the time they wanted that the servers
    may have waited for a core; above it other work slows the arms, and not alike: the ratio is not the device's.
    fewest: pairs; below 6 no order statistics reach a level of 0.95.
    resamples: bootstrap resamples, and permutations. seed: of both.
    """

    level: float = 0.95
    margin: float = 0.02
    drift_p: float = 0.01
    waiting: float = 0.2
    fewest: int = 6
    resamples: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.level < 1 and 0 < self.margin < 1 and 0 <= self.drift_p < 1 and 0 < self.waiting <= 1):
            raise ValueError(f"level, margin, drift_p and waiting lie between 0 and 1: {self}")
        if self.fewest < 2 or self.resamples < 100:
            raise ValueError(f"at least 2 pairs and 100 resamples: {self}")


@dataclass(frozen=True)
class Verdict:
    """word, and for "no verdict" the reason. ratio (median), interval, bootstrap, spread (MAD), drift: of the pairs.

    settles_at: pairs in all that would settle it, at this spread; None where the word is settled, or where more pairs
    do not help (drift, a busy machine: quieten it and start again).
    """

    word: Word
    reason: Reason | None
    pairs: int
    ratio: float
    interval: Interval
    bootstrap: Interval
    spread: float
    drift: Drift
    settles_at: int | None
    rule: Rule


def _positive(values: Series, where: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    bad = [index for index, value in enumerate(array.ravel()) if not (np.isfinite(value) and value > 0)]
    if array.ndim != 1 or not array.size or bad:
        raise Refused(
            Refusal(
                "measurement.samples_invalid",
                f"{where}[{bad[0]}]" if bad else where,
                repr(array.ravel()[bad[0]].item()) if bad else list(array.shape),
                "a list of finite numbers above 0",
                "a sample that is no positive number was not measured: leave its pair out and say so, or run again",
            )
        )
    return array


def pair_ratios(alone: Series, with_draft: Series) -> NDArray[np.float64]:
    """Seconds of the target alone / seconds with the draft, pair by pair: above 1 the draft makes it faster.

    Both: [n] seconds per emitted token (or per request, where both arms emitted as many tokens), in the order of pairs.
    Raises Refused: measurement.samples_invalid, measurement.samples_unpaired.
    """
    target, draft = _positive(alone, "alone"), _positive(with_draft, "with_draft")
    if target.shape != draft.shape:
        raise Refused(
            Refusal(
                "measurement.samples_unpaired",
                "with_draft",
                draft.size,
                target.size,
                "each sample of one arm needs its partner: drop the pairs that are incomplete, or run again",
            )
        )
    return target / draft


def split_warm_up(samples: Series, count: int) -> WarmUp:
    """The first `count` samples of an arm, set apart.

    Raises Refused (measurement.samples_invalid), and ValueError where nothing would be kept.
    """
    values = _positive(samples, "samples")
    if not 0 <= count < values.size:
        raise ValueError(f"{count} warm-up samples of {values.size}")
    discarded, kept = values[:count], values[count:]
    return WarmUp(tuple(discarded.tolist()), tuple(kept.tolist()), tuple((discarded / np.median(kept)).tolist()))


def measure_spread(values: Series) -> float:
    """Median absolute deviation from the median, in the values' unit, not scaled to a normal distribution's sigma."""
    array = np.asarray(values, dtype=np.float64)
    return float(np.median(np.abs(array - np.median(array))))


def bootstrap_interval(values: Series, *, level: float, resamples: int, seed: int) -> Interval:
    """Percentile interval of the median: quantiles (1 - level)/2 and (1 + level)/2 of the resamples' medians."""
    array = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, array.size, size=(resamples, array.size))
    low, high = np.quantile(np.median(array[drawn], axis=1), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def order_interval(values: Series, *, level: float) -> Interval:
    """Order statistics that hold the median with at least `level`; the whole range where too few values can."""
    array = np.sort(np.asarray(values, dtype=np.float64))
    k, below = 0, 0
    while 2 * (below + comb(array.size, k)) <= (1 - level) * 2**array.size:
        below += comb(array.size, k)
        k += 1
    k = max(k, 1)
    return Interval(float(array[k - 1]), float(array[array.size - k]))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: NDArray[np.float64] = ((2 * last - counts + 1) / 2)[which]
    return shared


def measure_drift(values: Series, *, permutations: int, seed: int) -> Drift:
    """Whether the values move with time. One value, or equal ones: slope 0, correlation 0, p 1."""
    array = np.asarray(values, dtype=np.float64)
    ranks = _ranks(array) - (array.size + 1) / 2
    if not ranks.any():
        return Drift(0.0, 0.0, 1.0)
    earlier, later = np.triu_indices(array.size, 1)
    slope = float(np.median((array[later] - array[earlier]) / (later - earlier)))
    index = np.arange(array.size) - (array.size - 1) / 2
    found = ranks @ index
    shuffled = np.random.default_rng(seed).permuted(np.tile(ranks, (permutations, 1)), axis=1)
    # Equal correlations differ by rounding once shuffled: they have to count as equal.
    as_strong = int((np.abs(shuffled @ index) >= abs(found) - 1e-9).sum())
    return Drift(slope, float(found / np.sqrt(ranks @ ranks * (index @ index))), (1 + as_strong) / (1 + permutations))


def _settles_at(pairs: int, ratio: float, interval: Interval, rule: Rule) -> int:
    """Pairs that would decide, by the nearer of the two decisions; more than there are."""
    centre, margin = abs(log(ratio)), log(1 + rule.margin)
    below, above = log(ratio) - log(interval.low), log(interval.high) - log(ratio)
    towards_one, away = (below, above) if ratio > 1 else (above, below)
    needed = []
    if centre:
        needed.append((towards_one / centre) ** 2)
    if centre < margin:
        needed.append(max(away / (margin - centre), towards_one / (margin + centre)) ** 2)
    return max(floor(pairs * min(needed)) + 1, pairs + 1)


def decide(ratios: Series, rule: Rule, *, waiting: float | None = None) -> Verdict:
    """The verdict over [n] per-pair ratios (n >= 1) in the order of measurement.

    waiting: the share of the time they wanted that the servers waited for a core; None where it is not known.
    In this order: "no verdict" for too few pairs, a busy machine or drift; "no difference" where the interval lies
    within the margin around 1; "faster" or "slower" where it lies wholly on one side of 1; else "no verdict", interval
    too wide.
    Raises Refused (measurement.samples_invalid).
    """
    array = _positive(ratios, "ratios")
    pairs, ratio = array.size, float(np.median(array))
    interval = order_interval(array, level=rule.level)
    bootstrap = bootstrap_interval(array, level=rule.level, resamples=rule.resamples, seed=rule.seed)
    drift = measure_drift(array, permutations=rule.resamples, seed=rule.seed)
    word: Word = "no verdict"
    reason: Reason | None = None
    settles_at: int | None = None
    if pairs < rule.fewest:
        reason, settles_at = "too few pairs", rule.fewest
    elif waiting is not None and waiting > rule.waiting:
        reason = "machine too busy"
    elif drift.p < rule.drift_p:
        reason = "drift"
    elif 1 / (1 + rule.margin) <= interval.low and interval.high <= 1 + rule.margin:
        word = "no difference"
    elif interval.low > 1:
        word = "faster"
    elif interval.high < 1:
        word = "slower"
    else:
        reason, settles_at = "interval too wide", _settles_at(pairs, ratio, interval, rule)
    return Verdict(word, reason, pairs, ratio, interval, bootstrap, measure_spread(array), drift, settles_at, rule)
