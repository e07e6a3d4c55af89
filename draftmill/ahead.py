"""What an iterator gives next, made ready in a thread while what came before is used."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()
_LOOK_S = 0.1


def ahead(items: Iterable[T], most: int) -> Iterator[T]:
    """The items in their order, up to `most` of them before they are asked for; begins at once. Raises what `items`
    raises, where it raises it. A caller that stops early closes the generator, and the thread ends."""
    ready: queue.Queue[Any] = queue.Queue(most)
    is_closed = threading.Event()

    def hand_over(item: Any) -> bool:
        while not is_closed.is_set():
            try:
                ready.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not hand_over((item, None)):
                    return
            hand_over((_END, None))
        except BaseException as error:
            hand_over((_END, error))

    threading.Thread(target=make, name="ahead", daemon=True).start()
    return _taken(ready, is_closed)


def _taken(ready: "queue.Queue[Any]", is_closed: threading.Event) -> Iterator[Any]:
    try:
        while True:
            item, error = ready.get()
            if error:
                raise error
            if item is _END:
                return
            yield item
    finally:
        is_closed.set()
