"""What a server says, with bounded memory: its first and its last bytes, and how many went by."""

import os
import threading
from collections.abc import Callable

_HEAD = 1 << 18
_TAIL = 1 << 18
_LINES_OF_TAIL = 6


class CappedLog:
    """Drains `descriptor` in a thread until its end, and closes it.

    `limit`: bytes after which `on_flood` is called once; reading goes on, so that the writer is never blocked.
    """

    def __init__(self, descriptor: int, *, limit: int, on_flood: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._on_flood = on_flood
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """All of it, or the head and the tail around a line that says how much is left out."""
        with self._lock:
            head, tail = bytes(self._head), bytes(self._tail)
            missing = self.size - len(head) - len(tail)
        gap = f"\n... {missing} bytes left out ...\n".encode() if missing else b""
        return (head + gap + tail).decode(errors="replace")

    def last_lines(self) -> str:
        return " | ".join(self.text()[-1500:].splitlines()[-_LINES_OF_TAIL:])

    def join(self, seconds: float) -> None:
        """Waits for the end of the writer's side."""
        self._thread.join(seconds)

    def _drain(self) -> None:
        flooded = False
        try:
            while chunk := os.read(self._descriptor, 1 << 16):
                with self._lock:
                    self.size += len(chunk)
                    room = _HEAD - len(self._head)
                    self._head += chunk[:room] if room > 0 else b""
                    self._tail += chunk[max(room, 0) :]
                    if len(self._tail) > 2 * _TAIL:
                        del self._tail[:-_TAIL]
                if self.size > self._limit and not flooded:
                    flooded = True
                    self._on_flood()
        finally:
            os.close(self._descriptor)
