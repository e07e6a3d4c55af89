"""What the greedy loop itself costs a round: everything but the target's and the draft's passes.

A target of the shape of Qwen3 (vocabulary 151,936) that answers from memory, and a proposer that does; the time inside
both is taken off. Goal: under 2 ms a round. Beside it what the argmax over the 8 verified rows takes, which is most.

    python -m benchmarks.loop
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from draftmill.speculation.greedy import decode
from draftmill.speculation.proposer import Proposal
from draftmill.speculation.target import Rows

VOCABULARY, HIDDEN, TAPS, BLOCK, ROUNDS = 151_936, 2560, 5, 8, 200


class Timed:
    """Adds up the time inside the calls of what it wraps."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return self._timed(found)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*given)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


class Target:
    """Every row says token 7."""

    taps = tuple(range(TAPS))
    context = None

    def __init__(self) -> None:
        self._logits = np.random.default_rng(0).standard_normal((BLOCK, VOCABULARY), np.float32)
        self._logits[:, 7] = 100
        self._features = np.zeros((BLOCK, TAPS * HIDDEN), np.float32)

    def prefill(self, tokens: Sequence[int]) -> Rows:
        return Rows(self._logits[:1], self._features[:1])

    def verify(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        return Rows(self._logits, self._features)

    def commit(self, path: Sequence[int]) -> None: ...


class Proposer:
    """Three right drafts and four wrong ones."""

    n_max = BLOCK - 1

    def begin(self, tokens: Sequence[int], features: np.ndarray) -> None: ...

    def propose(self, anchor: int) -> Proposal:
        return Proposal.flat([7, 7, 7, 1, 1, 1, 1])

    def commit(self, tokens: Sequence[int], features: np.ndarray) -> None: ...


def main() -> None:
    target, proposer = Timed(Target()), Timed(Proposer())
    start = time.perf_counter()
    found = decode(target, proposer, [1], budget=1 + 4 * ROUNDS)  # type: ignore[arg-type]
    whole = time.perf_counter() - start
    assert found.trace.passes == ROUNDS and found.trace.accepted == 3 * ROUNDS
    own = (whole - target.seconds - proposer.seconds) / ROUNDS
    logits = Target().verify((), ()).logits
    start = time.perf_counter()
    for _ in range(ROUNDS):
        logits.argmax(axis=1)
    argmax = (time.perf_counter() - start) / ROUNDS
    print(
        f"loop {1000 * own:.3f} ms a round over {ROUNDS} rounds, of which argmax of {BLOCK} rows {1000 * argmax:.3f} ms"
    )
    print(f"share of the goal of 2 ms: {own / 0.002:.2f}")


if __name__ == "__main__":
    main()
