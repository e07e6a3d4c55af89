"""Items that are made ready in a thread: the same ones in the same order, with their errors, and no thread left."""

import threading
import time
from collections.abc import Iterator

import pytest

from draftmill.ahead import Ahead
from tests.support.waiting import until


def test_items_come_in_their_order_and_no_more_than_asked_for_are_held() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    items = Ahead(count(), 5)
    # Five are held, and one waits to be.
    until(lambda: len(made) == 6, "six are made")
    time.sleep(0.1)
    assert len(made) == 6
    assert list(items) == list(range(100))


def test_an_error_comes_where_it_was_raised() -> None:
    def break_off() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    items = Ahead(break_off(), 5)
    assert next(items) == 1
    with pytest.raises(ValueError, match="no more"):
        next(items)


def test_whoever_stops_early_or_never_begins_leaves_no_thread() -> None:
    closed, dropped = Ahead(iter(int, 1), 2), Ahead(iter(int, 1), 2)
    assert next(closed) == 0
    closed.close()
    assert list(closed) == []
    del dropped
    until(lambda: not any(thread.name == "ahead" for thread in threading.enumerate()), "no thread is left")
