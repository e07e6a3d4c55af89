"""A target whose next token is a fixed function of the text so far, and proposers that are right as often as told."""

from collections.abc import Callable, Sequence

import numpy as np

from draftmill.speculation.proposer import Proposal
from draftmill.speculation.target import ROOT, Rows, depths

VOCABULARY = 64


def next_token(text: Sequence[int]) -> int:
    """Depends on the last three tokens and on the length: a wrong path or position shows at once."""
    return (7 * text[-1] + 3 * text[-2] + text[-3] + len(text)) % 60 if len(text) > 2 else 5


def greedy_text(prompt: Sequence[int], count: int, following: Callable[[Sequence[int]], int] = next_token) -> list[int]:
    text = list(prompt)
    for _ in range(count):
        text.append(following(text))
    return text[len(prompt) :]


class ScriptedTarget:
    """Keeps its text as a list; every row's answer comes from its own path through the batch."""

    taps = (1,)
    hidden_size = 2
    layers = 3
    vocabulary = VOCABULARY

    def __init__(self, following: Callable[[Sequence[int]], int] = next_token, context: int | None = None) -> None:
        self.following = following
        self.context = context
        self.text: list[int] = []
        self.widths: list[int] = []
        self._paths: list[list[int]] = []
        self._batch: list[int] = []

    def prefill(self, tokens: Sequence[int]) -> Rows:
        self.text = list(tokens)
        return Rows(self._logits([self.text]), self._features(len(tokens)))

    def verify(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        depths(parents)
        self._batch, self._paths = list(tokens), []
        for row, parent in enumerate(parents):
            self._paths.append([*([] if parent == ROOT else self._paths[parent]), row])
        self.widths.append(len(tokens))
        texts = [self.text + [tokens[row] for row in path] for path in self._paths]
        return Rows(self._logits(texts), self._features(len(tokens)))

    def commit(self, path: Sequence[int]) -> None:
        assert list(path) == self._paths[path[-1]], "each row of a path is the parent of the next"
        self.text += [self._batch[row] for row in path]

    def embed(self, tokens: Sequence[int]) -> np.ndarray:
        return np.zeros((len(tokens), 2), np.float32)

    def head(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros((len(rows), VOCABULARY), np.float32)

    def _logits(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        logits = np.zeros((len(texts), VOCABULARY), np.float32)
        for row, text in enumerate(texts):
            logits[row, self.following(text)] = 1
        return logits

    def _features(self, rows: int) -> np.ndarray:
        """A row's features name its place in the text, so that a proposer can be checked for what it was given."""
        return np.arange(len(self.text) - rows, len(self.text) + rows, dtype=np.float32)[:rows, None].repeat(2, 1)


class Replaying:
    """Knows the greedy text, and errs on purpose behind so many drafts of each round."""

    def __init__(self, text: Sequence[int], accepted: Sequence[int], n_max: int = 7) -> None:
        self.text, self.accepted, self.n_max = list(text), list(accepted), n_max
        self.begun: list[int] = []
        self.committed: list[int] = []
        self.rounds = 0

    def begin(self, tokens: Sequence[int], features: np.ndarray) -> None:
        assert len(features) == len(tokens)
        self.begun = list(tokens)

    def propose(self, anchor: int) -> Proposal:
        at = len(self.committed)
        assert anchor == self.text[at], "the anchor is the newest token of the text"
        drafts = (self.text + [0] * self.n_max)[at + 1 : at + 1 + self.n_max]
        right = self.accepted[self.rounds % len(self.accepted)]
        self.rounds += 1
        if right < self.n_max:
            drafts[right] = (drafts[right] + 1) % 60
        return Proposal.flat(drafts)

    def commit(self, tokens: Sequence[int], features: np.ndarray) -> None:
        assert len(features) == len(tokens)
        self.committed += tokens
        assert self.committed == self.text[: len(self.committed)]
