"""What is drafted from a block's hidden rows: the argmax of generation 1, the candidate selector of generation 2.

score_t(a, b) = U_t[b] + sum_r A[a, r] * g_t[r] * S[b, r], over the top-k candidates b of U_t (dflash.md 5.4). U_t are
the head's logits after multiplier and softcap, g_t the projected hidden row, a the pick before (first the anchor).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from draftmill.dflash.config import DraftConfig

Rows = Callable[[np.ndarray], np.ndarray]
"""ids [n] -> rows of a codebook, [n, rank]."""


def transformed(logits: np.ndarray, config: DraftConfig) -> np.ndarray:
    """Logits times output_multiplier, then cap * tanh(. / cap) (dflash.md 3.3). Both keep the order."""
    scaled = logits * logits.dtype.type(config.output_multiplier)
    if cap := config.final_logit_softcapping:
        return np.tanh(scaled / logits.dtype.type(cap)) * logits.dtype.type(cap)
    return scaled


def top_candidates(logits: np.ndarray, count: int) -> np.ndarray:
    """ids [rows, count] of the highest logits [rows, V], highest first; of equal ones the lower id."""
    count = min(count, logits.shape[1])
    # The count-th highest value is enough to find every candidate, ties included, without sorting the vocabulary.
    floor = np.partition(logits, logits.shape[1] - count, axis=1)[:, -count]
    found = np.empty((len(logits), count), np.int64)
    for row, (values, least) in enumerate(zip(logits, floor, strict=True)):
        ids = np.flatnonzero(values >= least)
        found[row] = ids[np.lexsort((ids, -values[ids]))][:count]
    return found


@dataclass(frozen=True)
class Selector:
    """predecessor, successor: the codebooks, read by rows; project: [n, H] -> [n, rank]."""

    config: DraftConfig
    project: Callable[[np.ndarray], np.ndarray]
    predecessor: Rows
    successor: Rows

    def walk(self, hidden: np.ndarray, logits: np.ndarray, anchor: int) -> np.ndarray:
        """ids [n]: row after row, each given the pick before it. hidden [n, H]; logits [n, V], the head's own."""
        assert self.config.second  # noqa: S101 - only generation 2 has a selector
        candidates = top_candidates(logits, self.config.second.selector_top_k)
        scores = transformed(np.take_along_axis(logits, candidates, axis=1), self.config)
        gates = self.project(hidden)
        rank = gates.shape[1]
        successors = self.successor(candidates.reshape(-1)).reshape(*candidates.shape, rank)
        # Any candidate of a row may be the next row's predecessor; one reading costs less than one a row.
        # An anchor that the draft does not know (the target's vocabulary may be larger) has no pairwise term.
        known = anchor < self.config.vocab_size
        ids = np.concatenate([[anchor if known else 0], candidates[:-1].reshape(-1)])
        predecessors = self.predecessor(ids)
        if not known:
            predecessors[0] = 0
        picked, previous = np.empty(len(hidden), np.int64), 0
        for row in range(len(hidden)):
            pairwise = successors[row] @ (predecessors[previous] * gates[row])
            best = int(np.argmax(scores[row] + pairwise))
            picked[row] = candidates[row, best]
            previous = 1 + row * candidates.shape[1] + best
        return picked

    def scores(self, hidden: np.ndarray, logits: np.ndarray, previous: int) -> np.ndarray:
        """What one row's pick is the best of, [V]: -inf for those that are no candidates. Arguments as `pick`."""
        assert self.config.second  # noqa: S101 - only generation 2 has a selector
        candidates = top_candidates(logits[None], self.config.second.selector_top_k)[0]
        found = np.full(len(logits), -np.inf, logits.dtype)
        found[candidates] = transformed(logits[candidates], self.config)
        if previous < self.config.vocab_size:
            gate = self.predecessor(np.array([previous]))[0] * self.project(hidden[None])[0]
            found[candidates] += self.successor(candidates) @ gate
        return found

    def pick(self, hidden: np.ndarray, logits: np.ndarray, previous: int) -> int:
        """One row's choice. hidden [H], logits [V]; previous: the token before."""
        return int(self.walk(hidden[None], logits[None], previous)[0])
