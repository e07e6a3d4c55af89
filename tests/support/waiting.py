"""Waiting for what another process or thread does, and what a call takes of the processor.

Seconds here are guards against hanging. Neighbours make everything slower, so no test asserts how soon something came.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

GUARD_S = 120.0

T = TypeVar("T")


def until(holds: Callable[[], T], what: str, within_s: float = GUARD_S, every_s: float = 0.02) -> T:
    """What `holds` gives once it is true. Fails when that did not come."""
    deadline = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(every_s)
    return found


@contextmanager
def little_work(seconds: float) -> Iterator[None]:
    """Fails when the block takes more of this process's own processor time, which neighbours add nearly nothing to."""
    started = time.process_time()
    yield
    took = time.process_time() - started
    assert took < seconds, f"{took:.2f} s of the processor, not below {seconds:g}"
