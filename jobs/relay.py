"""Carries connections from one listening socket to another place, byte by byte.

A container without a network reaches exactly one address of its host this way: inside it the supervisor listens on that
address and dials a mounted Unix socket; outside it the runner accepts there and dials the address.
"""

import contextlib
import socket
import threading
from collections.abc import Callable

BLOCK = 1 << 16
Dial = Callable[[], socket.socket]


def serve(listener: socket.socket, dial: Dial) -> None:
    """Carries until the listener is shut down. A place that does not answer closes the connection."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_carry, args=(near, dial), daemon=True).start()


def dial_unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def _carry(near: socket.socket, dial: Dial) -> None:
    with near, contextlib.suppress(OSError), dial() as far:
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while block := source.recv(BLOCK):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # Both ends, so that the other direction's pump ends too.
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
