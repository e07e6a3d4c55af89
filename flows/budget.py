"""Room for models that run at once: memory and disk, given out in the order in which they were asked for.

In that order, so that a large model waits for room and is not overtaken for ever by small ones.
"""

import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill import host
from draftmill.outcome import InputOutput
from flows.routes.route import Needs

KEPT_FREE = 1 << 30
"""Bytes of the disk that are never given out."""
MEMORY_SHARE = 0.8
AGAIN_S = 5.0


def free_disk(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return max(0, shutil.disk_usage(folder).free - KEPT_FREE)


def available_memory() -> int:
    """Most of what the kernel could give without swapping."""
    found = host.available_memory()
    if found is None:
        raise InputOutput("/proc/meminfo does not say MemAvailable: give --memory.", code="catalogue.memory")
    return int(found * MEMORY_SHARE)


class Budget:
    """memory, disk: bytes for all together. What is on the disk already counts through `free`, asked each time; what
    is running counts as if it had written nothing yet."""

    def __init__(self, memory: int, disk: int, free: Callable[[], int]) -> None:
        self.memory, self.disk = memory, disk
        self._free = free
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._running: list[Needs] = []

    @contextmanager
    def room(self, needs: Needs, title: str) -> Iterator[None]:
        """Waits for room and holds it. Raises InputOutput("catalogue.no_room") when there will never be enough."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or not self._fits(needs):
                    if self._queue[0] is ticket and not self._running:
                        raise self._never(needs, title)
                    # Another program may free the disk, and tells nobody.
                    self._changed.wait(AGAIN_S)
            except BaseException:
                self._queue.remove(ticket)
                self._changed.notify_all()
                raise
            self._queue.popleft()
            self._running.append(needs)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(needs)
                self._changed.notify_all()

    def _fits(self, needs: Needs) -> bool:
        memory = sum(each.memory for each in self._running) + needs.memory
        disk = sum(each.disk for each in self._running) + needs.disk
        return memory <= self.memory and disk <= min(self.disk, self._free())

    def _never(self, needs: Needs, title: str) -> InputOutput:
        if needs.memory > self.memory:
            what, needed, there, option = "memory", needs.memory, self.memory, "--memory"
        else:
            what, needed, there, option = "disk", needs.disk, min(self.disk, self._free()), "--disk"
        sentence = (
            f"{title} needs about {needed / 1e9:.1f} GB of {what}, and with nothing else running there are "
            f"{there / 1e9:.1f} GB. Make room, or give more with {option}."
        )
        return InputOutput(sentence, code="catalogue.no_room", where=title)
