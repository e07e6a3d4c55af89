"""What proposes drafts to a greedy loop: a DFlash draft, a stub, or whatever has these three calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from draftmill.speculation.target import chain


@dataclass(frozen=True)
class Proposal:
    """Drafted tokens. parents: of each, an earlier draft, or `target.ROOT` for one that follows the anchor."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    @classmethod
    def flat(cls, tokens: Sequence[int]) -> Self:
        """Each draft follows the one before."""
        return cls(tuple(int(token) for token in tokens), tuple(chain(len(tokens))))


class Proposer(Protocol):
    """n_max: drafts of a round at most."""

    n_max: int

    def begin(self, tokens: Sequence[int], features: np.ndarray) -> None:
        """A new answer: the prompt's tokens, and the target's features of each."""

    def propose(self, anchor: int) -> Proposal:
        """Drafts that follow the anchor, the token that was decided last and is not in the target's state yet."""

    def commit(self, tokens: Sequence[int], features: np.ndarray) -> None:
        """Rows that entered the target's state: the anchor and the accepted drafts, with their features."""
