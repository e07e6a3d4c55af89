"""How sure an acceptance is: an interval for accepted / offered, pooled over prompts.

The prompts are the sample: drafts within an answer, and answers to one prompt, hang together, so that counting each
draft as a trial of its own would promise far too much. With A_p and O_p the sums over the answers to prompt p, the
interval is the percentile bootstrap of sum A_p / sum O_p over resampled prompts (Efron and Tibshirani, An Introduction
to the Bootstrap, 13.3), seeded. It covers somewhat less than its level where prompts are few, and with fewer than six
there is none.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from draftmill.measurement.statistics import Interval

LEVEL = 0.95
FEWEST = 6
"""Distinct prompts, as many as a verdict on speed needs pairs."""
RESAMPLES = 4000
SEED = 0


def acceptance_interval(answers: Iterable[tuple[str, int, int]]) -> Interval | None:
    """answers: (prompt, accepted, offered) each. None where fewer than `FEWEST` prompts were offered a draft."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for prompt, accepted, offered in answers:
        counts[prompt][0] += accepted
        counts[prompt][1] += offered
    sums = np.array([each for each in counts.values() if each[1]], dtype=np.int64).reshape(-1, 2)
    if len(sums) < FEWEST:
        return None
    drawn = np.random.default_rng(SEED).integers(0, len(sums), size=(RESAMPLES, len(sums)))
    accepted, offered = sums[drawn].sum(axis=1).T
    low, high = np.quantile(accepted / offered, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
