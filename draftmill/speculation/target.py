"""What a greedy speculative loop asks of a target model: rows computed together, each with its parent, and some kept.

A row is one token at one position. In a flat chain each row's parent is the row before; a tree of candidates is the
same call with another parent list. A row sees the committed text, its ancestors in the batch and itself; its position
is the committed length plus its depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

ROOT = -1
"""The parent of a row that follows the committed text."""


@dataclass(frozen=True)
class Rows:
    """logits: float32 [n, vocabulary], for the token after each row. features: float32 [n, taps * hidden], the outputs
    of the tapped layers side by side in the order of `Target.taps`."""

    logits: np.ndarray
    features: np.ndarray


class Target(Protocol):
    """A causal language model with a state. taps: 0-based layers whose outputs are features.

    vocabulary: rows of the embedding table. context: positions it was made for, None where it does not say.
    """

    taps: tuple[int, ...]
    hidden_size: int
    layers: int
    vocabulary: int
    context: int | None

    def prefill(self, tokens: Sequence[int]) -> Rows:
        """Begins anew with these tokens committed. logits: [1, vocabulary], of the last row; features: of all."""

    def verify(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        """Computes rows behind the committed text, none of which is committed. parents: an earlier row, or ROOT."""

    def commit(self, path: Sequence[int]) -> None:
        """Keeps these rows of the last `verify`, each the parent of the next, the first behind the committed text."""

    def embed(self, tokens: Sequence[int]) -> np.ndarray:
        """Rows of the embedding table as it is, float32 [n, hidden]: without a scale or norm that the model adds."""

    def head(self, rows: np.ndarray) -> np.ndarray:
        """The output matrix alone, float32 [n, hidden] -> [n, vocabulary]."""


def chain(count: int) -> list[int]:
    """Parents of a flat chain."""
    return list(range(ROOT, count - 1))


def depths(parents: Sequence[int]) -> list[int]:
    """How many ancestors each row has in the batch. Raises ValueError where a parent is no earlier row."""
    found: list[int] = []
    for row, parent in enumerate(parents):
        if not ROOT <= parent < row:
            raise ValueError(f"row {row} has parent {parent}: a parent is an earlier row, or {ROOT}")
        found.append(0 if parent == ROOT else found[parent] + 1)
    return found


def ancestors(parents: Sequence[int]) -> np.ndarray:
    """bool [n, n]: which rows of the batch each row sees, itself included."""
    seen = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent != ROOT:
            seen[row] |= seen[parent]
    return seen


def is_chain(parents: Sequence[int]) -> bool:
    return list(parents) == chain(len(parents))
