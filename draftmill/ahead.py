"""What an iterator gives next, made ready in a thread while what came before is used."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_END = object()
_LOOK_S = 0.1


class Ahead(Iterator[T], Generic[T]):
    """The items in their order, up to `most` of them before they are asked for; begins at once. Raises what `items`
    raises, where it raises it. The thread ends with the items, with `close`, or when nobody has this any more."""

    def __init__(self, items: Iterable[T], most: int) -> None:
        self._ready: queue.Queue[Any] = queue.Queue(most)
        self._is_closed = threading.Event()
        # Not a method: a thread that had this object would keep it for ever.
        threading.Thread(target=_make, args=(items, self._ready, self._is_closed), name="ahead", daemon=True).start()

    def __next__(self) -> T:
        if self._is_closed.is_set():
            raise StopIteration
        item, error = self._ready.get()
        if item is _END:
            self.close()
            raise error or StopIteration
        found: T = item
        return found

    def close(self) -> None:
        self._is_closed.set()

    def __del__(self) -> None:
        self.close()


def _make(items: Iterable[Any], ready: "queue.Queue[Any]", is_closed: threading.Event) -> None:
    def hand_over(item: Any, error: BaseException | None = None) -> bool:
        while not is_closed.is_set():
            try:
                ready.put((item, error), timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False

    try:
        for item in items:
            if not hand_over(item):
                return
        hand_over(_END)
    except BaseException as error:
        hand_over(_END, error)
