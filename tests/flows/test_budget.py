"""Room for models that run at once."""

import threading
import time
from pathlib import Path

import pytest

from draftmill.outcome import InputOutput
from flows.budget import Budget, available_memory, free_disk
from flows.routes.route import Needs
from tests.support.waiting import GUARD_S, until

GB = 10**9


def budget(memory: int = 10 * GB, disk: int = 100 * GB, free: int = 100 * GB) -> Budget:
    return Budget(memory, disk, lambda: free)


def started(room: Budget, name: str, needs: Needs, order: list[str], leave: threading.Event) -> threading.Thread:
    def run() -> None:
        with room.room(needs, name):
            order.append(name)
            leave.wait(600)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (Needs(memory=3 * GB), Needs(memory=9 * GB)),
        (Needs(disk=30 * GB), Needs(disk=90 * GB)),
    ],
)
def test_a_large_model_waits_for_room_and_is_not_overtaken(small: Needs, large: Needs) -> None:
    room, order, first, rest = budget(), [], threading.Event(), threading.Event()
    threads = [started(room, "first", small, order, first)]
    until(lambda: order, "the first is in")
    threads.append(started(room, "large", large, order, rest))
    until(lambda: len(room._queue) == 1, "the large one waits")
    # It would fit beside the first, and comes after the large one all the same.
    threads.append(started(room, "late", small, order, rest))
    until(lambda: len(room._queue) == 2, "the late one waits")
    assert order == ["first"]
    first.set()
    until(lambda: len(order) > 1, "the large one is in")
    time.sleep(0.1)
    assert order == ["first", "large"]
    rest.set()
    for thread in threads:
        thread.join(GUARD_S)
    assert order == ["first", "large", "late"]


def test_what_fits_runs_together() -> None:
    room, order, leave = budget(), [], threading.Event()
    threads = [started(room, str(n), Needs(memory=3 * GB, disk=GB), order, leave) for n in range(3)]
    until(lambda: sorted(order) == ["0", "1", "2"], "all are in")
    leave.set()
    for thread in threads:
        thread.join(GUARD_S)


@pytest.mark.parametrize(
    ("room", "word"),
    [(budget(memory=GB), "--memory"), (budget(disk=GB), "--disk"), (budget(free=GB), "--disk")],
)
def test_what_will_never_fit_is_told_at_once_and_the_next_one_runs(room: Budget, word: str) -> None:
    with pytest.raises(InputOutput) as caught, room.room(Needs(memory=2 * GB, disk=2 * GB), "amd/Large"):
        pass
    assert caught.value.code == "catalogue.no_room"
    assert word in str(caught.value)
    assert "amd/Large" in str(caught.value)
    with room.room(Needs(memory=GB // 2, disk=GB // 2), "amd/Small"):
        pass


def test_room_is_given_back_when_the_model_fails() -> None:
    room = budget()
    for _ in range(3):
        with pytest.raises(ValueError, match="broke"), room.room(Needs(memory=9 * GB), "amd/x"):
            raise ValueError("broke")


def test_the_hosts_own_numbers_are_plausible(tmp_path: Path) -> None:
    assert 0 < available_memory() < 1 << 50
    assert 0 <= free_disk(tmp_path / "work") < 1 << 60
