"""What may work when tried again, and for how long to try."""

from collections.abc import Callable
from typing import TypeVar

from draftmill.outcome import MillError

T = TypeVar("T")

Pause = Callable[[float], object]
"""Waits so many seconds."""

ATTEMPTS = 6
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 300.0


class Retry(Exception):
    """Try again: after `after` seconds where the server said so. `outcome` is how it ends when patience does.
    attempts: how many are worth it. start_over: what is there already cannot be continued."""

    def __init__(
        self, outcome: MillError, *, after: float | None = None, attempts: int = ATTEMPTS, start_over: bool = False
    ) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome
        self.after = after
        self.attempts = attempts
        self.start_over = start_over


class Patience:
    """Doubling waits, a bounded number of attempts without progress, and the server's own wish where it has one."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._failures = 0

    def wait(self, retry: Retry, *, progressed: bool = False) -> None:
        """Raises the outcome when there were enough attempts, or when the server asks for too long a wait."""
        self._failures = 1 if progressed else self._failures + 1
        wait = FIRST_WAIT_S * 2 ** (self._failures - 1) if retry.after is None else retry.after
        if self._failures >= retry.attempts or wait > LONGEST_WAIT_S:
            raise retry.outcome from None
        self._pause(wait)


def persist(attempt: Callable[[], T], pause: Pause) -> T:
    """Calls until it returns. Raises what it raises, or the outcome of its last Retry."""
    patience = Patience(pause)
    while True:
        try:
            return attempt()
        except Retry as retry:
            patience.wait(retry)
