"""A mutable object that several writers change: whoever was not first reads again, changes again, tries again."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from draftmill.outcome import Temporary

T = TypeVar("T")
TRIES = 30


def until_first(change: Callable[[], T], pause: Callable[[float], object] = time.sleep) -> T:
    """`change` reads and replaces, anew after each Temporary("store.changed"); pauses in seconds, longer each time.

    Raises that Temporary when somebody else was first TRIES times, and what `change` raises.
    """
    for attempt in range(TRIES - 1):
        try:
            return change()
        except Temporary as error:
            if error.code != "store.changed":
                raise
        pause(random.uniform(0, min(0.02 * 2**attempt, 2)))  # noqa: S311 - apart from each other, not secret
    return change()
