"""Statistics of paired samples, against values worked out by hand or by full enumeration."""

import math
from itertools import permutations, product
from statistics import median
from typing import Any

import numpy as np
import pytest

from draftmill.measurement.statistics import (
    Interval,
    Rule,
    bootstrap_interval,
    decide,
    measure_drift,
    measure_spread,
    order_interval,
    pair_ratios,
    split_warm_up,
)
from draftmill.outcome import Refused


def codes(error: pytest.ExceptionInfo[Refused]) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in error.value.refusals]


def test_a_ratio_above_one_means_the_draft_takes_less_time() -> None:
    assert pair_ratios([3.0, 2.0, 5.0], [2.0, 4.0, 5.0]).tolist() == [1.5, 0.5, 1.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_sample_that_is_no_time_is_refused_by_its_place(bad: float) -> None:
    with pytest.raises(Refused) as refused:
        pair_ratios([1.0, 1.0], [1.0, bad])
    assert codes(refused) == [("measurement.samples_invalid", "with_draft[1]")]
    with pytest.raises(Refused) as refused:
        decide([bad], Rule())
    assert codes(refused) == [("measurement.samples_invalid", "ratios[0]")]


def test_no_samples_and_unpaired_samples_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        pair_ratios([], [])
    assert codes(refused) == [("measurement.samples_invalid", "alone")]
    with pytest.raises(Refused) as refused:
        pair_ratios([1.0, 2.0], [1.0])
    assert codes(refused) == [("measurement.samples_unpaired", "with_draft")]


def test_warm_up_is_set_apart_and_told_against_the_settled_median() -> None:
    warm = split_warm_up([28.0, 3.0, 2.0, 1.0, 2.0, 9.0], 2)
    assert (warm.discarded, warm.kept, warm.relative) == ((28.0, 3.0), (2.0, 1.0, 2.0, 9.0), (14.0, 1.5))
    assert split_warm_up([1.0], 0).discarded == ()


@pytest.mark.parametrize("count", [-1, 2, 3])
def test_a_warm_up_leaves_something(count: int) -> None:
    with pytest.raises(ValueError, match="warm-up samples of 2"):
        split_warm_up([1.0, 2.0], count)


def test_spread_is_the_median_distance_from_the_median() -> None:
    # Median 2; distances 1, 1, 0, 0, 2, 4, 7.
    assert measure_spread([1, 1, 2, 2, 4, 6, 9]) == 1.0


@pytest.mark.parametrize(("level", "expected"), [(0.95, (1.0, 9.0)), (0.40, (2.0, 2.0)), (0.50, (1.0, 9.0))])
def test_the_bootstrap_of_three_values_is_as_counted_by_hand(level: float, expected: tuple[float, float]) -> None:
    # Of 27 resamples 7 have the least value as their median, 13 the middle, 7 the greatest: steps at 0.259 and 0.741.
    found = bootstrap_interval([2.0, 9.0, 1.0], level=level, resamples=20_000, seed=1)
    assert (found.low, found.high) == expected


def test_the_bootstrap_agrees_with_every_resample_of_five_values() -> None:
    values = [1.0, 1.5, 1.6, 2.5, 4.0]
    every = sorted(median(drawn) for drawn in product(values, repeat=5))
    at = [every[round(share * (len(every) - 1))] for share in (0.1, 0.9)]
    found = bootstrap_interval(values, level=0.8, resamples=20_000, seed=2)
    assert [found.low, found.high] == at == [1.5, 2.5]


def test_the_bootstrap_repeats_with_its_seed_only() -> None:
    values = np.random.default_rng(0).normal(size=30)
    one, same, other = (bootstrap_interval(values, level=0.9, resamples=100, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


# P(Binomial(n, 1/2) < k): n 5 1/32 = 0.031; n 6 1/64 = 0.016, then 7/64; n 9 1/512, 10/512 = 0.0195, then 46/512.
@pytest.mark.parametrize(("count", "expected"), [(1, (1, 1)), (5, (1, 5)), (6, (1, 6)), (8, (1, 8)), (9, (2, 8))])
def test_order_statistics_by_the_binomial_tail(count: int, expected: tuple[int, int]) -> None:
    assert order_interval(list(range(count, 0, -1)), level=0.95) == Interval(*map(float, expected))


def test_a_tail_that_equals_the_level_suffices() -> None:
    # Seven values: 2 P(Binomial < 2) = 16/128 = 1 - 0.875.
    assert order_interval(list(range(1, 8)), level=0.875) == Interval(2.0, 6.0)
    assert order_interval(list(range(1, 8)), level=0.88) == Interval(1.0, 7.0)


def test_order_statistics_of_twenty_are_the_sixth_and_the_fifteenth() -> None:
    # The textbook interval: 95.9 % at n = 20.
    assert order_interval(list(range(1, 21)), level=0.95) == Interval(6.0, 15.0)


def test_drift_of_a_straight_line_is_its_slope_and_the_share_of_orders_as_strict() -> None:
    found = measure_drift([1.0, 1.5, 2.0, 2.5, 3.0], permutations=20_000, seed=1)
    assert (found.slope, found.correlation) == (0.5, pytest.approx(1.0))
    # Only the rising and the falling order of the 120.
    assert found.p == pytest.approx(2 / 120, abs=3e-3)


def test_the_slope_does_not_mind_one_disturbed_pair() -> None:
    assert measure_drift([1.0, 2.0, 3.0, 40.0, 5.0, 6.0, 7.0], permutations=100, seed=1).slope == 1.0


def test_the_correlation_shares_ranks_among_ties() -> None:
    # Ranks 1.5, 1.5, 3, 4 with index 1..4: covariance 4.5, norms 4.5 and 5 -> 4.5 / sqrt(22.5).
    assert measure_drift([1, 1, 2, 7], permutations=100, seed=1).correlation == pytest.approx(4.5 / math.sqrt(22.5))


def test_the_p_value_agrees_with_every_order_of_six_values() -> None:
    values = [1.0, 3.0, 2.0, 2.0, 5.0, 4.0]
    ranks = [1.0, 4.0, 2.5, 2.5, 6.0, 5.0]

    def strength(order: Any) -> float:
        return abs(sum(rank * (index - 2.5) for index, rank in enumerate(order)))

    every = [strength(order) >= strength(ranks) - 1e-9 for order in permutations(ranks)]
    assert measure_drift(values, permutations=20_000, seed=1).p == pytest.approx(sum(every) / len(every), abs=0.01)


@pytest.mark.parametrize("values", [[2.0], [2.0, 2.0, 2.0]])
def test_what_does_not_move_does_not_drift(values: list[float]) -> None:
    found = measure_drift(values, permutations=100, seed=1)
    assert (found.slope, found.correlation, found.p) == (0.0, 0.0, 1.0)


STEADY = [1.30, 1.42, 1.35, 1.38, 1.31, 1.40, 1.36, 1.33]


def test_pairs_all_above_one_are_faster() -> None:
    found = decide(STEADY, Rule())
    assert (found.word, found.reason, found.settles_at, found.pairs) == ("faster", None, None, 8)
    assert found.ratio == pytest.approx(1.355)
    # Eight values: the order statistics at 0.95 are the least and the greatest.
    assert found.interval == Interval(1.30, 1.42)
    assert found.bootstrap == bootstrap_interval(STEADY, level=0.95, resamples=4000, seed=0)


def test_the_bootstrap_alone_decides_nothing() -> None:
    # Its low end lies between the two least values, and so above 1; the order statistics reach down to the least.
    found = decide([*STEADY[:-1], 0.99], Rule())
    assert found.bootstrap.low > 1 > found.interval.low
    assert (found.word, found.reason) == ("no verdict", "interval too wide")


def test_the_other_arm_first_gives_the_other_word() -> None:
    assert decide([1 / ratio for ratio in STEADY], Rule()).word == "slower"


@pytest.mark.parametrize("shift", [1.0, 1.012, 0.99])
def test_pairs_within_the_margin_are_no_difference_on_either_side_of_one(shift: float) -> None:
    ratios = [shift * each for each in (1.001, 0.999, 1.002, 0.998, 1.0, 1.003, 0.997, 1.0)]
    assert decide(ratios, Rule()).word == "no difference"
    assert decide(ratios, Rule(margin=0.001)).word != "no difference"


def test_five_pairs_are_too_few_and_six_are_not() -> None:
    found = decide(STEADY[:5], Rule())
    assert (found.word, found.reason, found.settles_at) == ("no verdict", "too few pairs", 6)
    assert decide(STEADY[:6], Rule()).word == "faster"
    assert decide(STEADY[:1], Rule()).interval == Interval(1.30, 1.30)


def test_a_drift_forbids_a_verdict_and_more_pairs_do_not_help() -> None:
    falling = [1.60, 1.55, 1.52, 1.47, 1.41, 1.38, 1.33, 1.29, 1.22, 1.18]
    found = decide(falling, Rule())
    assert (found.word, found.reason, found.settles_at) == ("no verdict", "drift", None)
    assert found.drift.slope < 0
    # The same values in another order drift no more.
    mixed = [1.29, 1.52, 1.22, 1.60, 1.38, 1.18, 1.55, 1.33, 1.47, 1.41]
    assert decide(mixed, Rule()).word == "faster"


def test_a_wide_interval_gives_no_verdict_and_says_how_many_pairs_would() -> None:
    # Eight pairs, symmetric in logarithms around log 1.1: the interval is the whole range, exp(+-0.2) about 1.1.
    steps = [0.2, -0.1, 0.05, -0.2, 0.1, -0.05, 0.15, -0.15]
    found = decide([1.1 * math.exp(step) for step in steps], Rule())
    assert (found.word, found.reason) == ("no verdict", "interval too wide")
    assert found.interval.low == pytest.approx(1.1 * math.exp(-0.2))
    # Half-width about 0.2 has to come below log(median), with the median between the two middle values.
    centre = math.log((1.1 * math.exp(0.05) + 1.1 * math.exp(-0.05)) / 2)
    half = centre - math.log(found.interval.low)
    assert found.settles_at == math.floor(8 * (half / centre) ** 2) + 1 == 35


def test_a_slower_draft_is_settled_by_as_many_pairs_as_its_mirror() -> None:
    # Seven pairs: the range, log 1.08 - 0.1 to log 1.08 + 0.5; the side towards 1 is the narrow one.
    steps = [-0.1, 0.5, 0.0, -0.05, 0.3, -0.02, 0.2]
    ratios = [1.08 * math.exp(step) for step in steps]
    found, mirrored = decide(ratios, Rule()), decide([1 / each for each in ratios], Rule())
    assert (found.reason, mirrored.reason) == ("interval too wide", "interval too wide")
    assert found.settles_at == mirrored.settles_at == math.floor(7 * (0.1 / math.log(1.08)) ** 2) + 1 == 12


def test_around_one_it_is_the_margin_that_settles() -> None:
    steps = [0.2, -0.1, 0.05, -0.2, 0.1, -0.05, 0.15, -0.15, 0.0]
    found = decide([math.exp(step) for step in steps], Rule(margin=0.05))
    # Nine values: second and eighth, exp(+-0.15), around a median of 1; log 1.05 = 0.04879.
    assert (found.ratio, found.interval.high) == (1.0, pytest.approx(math.exp(0.15)))
    assert found.settles_at == math.floor(9 * (0.15 / math.log(1.05)) ** 2) + 1 == 86


def test_noise_of_either_kind_seldom_turns_the_sign() -> None:
    rng = np.random.default_rng(5)
    rule = Rule(resamples=200)
    words = [decide(1.05 * np.exp(0.2 * rng.standard_t(2, size=12)), rule).word for _ in range(200)]
    # One-sided error of a 95 % interval: below 2.5 % where the true ratio is 1, less where it is 1.05.
    assert words.count("slower") <= 5
    assert words.count("no verdict") > 100


@pytest.mark.parametrize(
    "changes",
    [
        {"level": 1.0},
        {"level": 0.0},
        {"margin": 0.0},
        {"drift_p": 1.0},
        {"drift_p": -0.1},
        {"fewest": 1},
        {"resamples": 9},
    ],
)
def test_a_rule_that_decides_nothing_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Rule"):
        Rule(**changes)
