"""The interval of an acceptance: against a distribution that is known, and none where prompts are few."""

from math import comb

import pytest

from draftmill.measurement.acceptance_interval import acceptance_interval


def test_prompts_of_all_or_nothing_resample_as_a_binomial() -> None:
    """Ten prompts of which seven accept all of their 8 drafts: a resample's share is Binomial(10, 0.7) / 10, whose
    quantile at 0.025 is 0.4 (P below 0.4 is 0.0106, up to it 0.0473) and at 0.975 is 1.0 (P up to 0.9 is 0.9718)."""
    below = [sum(comb(10, k) * 0.7**k * 0.3 ** (10 - k) for k in range(end)) for end in range(12)]
    assert below[4] < 0.025 < below[5]
    assert below[10] < 0.975 < below[11]
    found = acceptance_interval([(f"p{n}", 8 if n < 7 else 0, 8) for n in range(10)])
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(0.4), pytest.approx(1.0))


def test_answers_to_one_prompt_are_one_observation() -> None:
    once = [(f"p{n}", n, 8) for n in range(7)]
    assert acceptance_interval(once * 50) == acceptance_interval(once)
    assert acceptance_interval(once[:5] * 50) is None


def test_a_prompt_that_was_offered_no_draft_says_nothing() -> None:
    five = [(f"p{n}", n, 8) for n in range(5)]
    assert acceptance_interval([*five, ("quiet", 0, 0)]) is None
    assert acceptance_interval([*five, ("p5", 3, 8)]) is not None
    assert acceptance_interval([]) is None
