"""The one pass over a container: every byte is read once, hashed, and shown to whoever measures it.

Reading, hashing and measuring go on side by side in three threads over a few buffers, since hashlib and numpy let go
of the interpreter. Plain reads and no map: a file that is cut short while it is read must not end the process.
"""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from draftmill.progress import Progress, silent

PIECE = 1 << 20
"""Bytes that are read, hashed and measured at a time: what was just read is then still in a core's cache."""
BUFFERS = 4


@dataclass(frozen=True)
class Span:
    """Bytes [begin, end) of the file that something looks at. take(offset, data): data begins `offset` bytes into the
    span, is uint8, holds whole units unless it is the rest, and is only valid during the call."""

    begin: int
    end: int
    unit: int
    take: Callable[[int, np.ndarray], None]


class CutShort(Exception):
    """The file ended before its size at the start."""


def read_through(
    descriptor: int, size: int, spans: Sequence[Span], what: str, progress: Progress = silent, piece: int = PIECE
) -> str:
    """SHA-256 of the file's first `size` bytes; `spans`, which do not overlap, are shown theirs in order.

    Raises CutShort, OSError.
    """
    ordered = sorted((span for span in spans if span.end > span.begin), key=lambda span: span.begin)
    pieces = _pieces(size, ordered, piece)
    digest = hashlib.sha256()
    if len(pieces) == 1:
        buffer = np.empty(size, np.uint8)
        _fill(descriptor, buffer, 0)
        digest.update(buffer.data)
        _show(ordered, 0, buffer)
    elif pieces:
        _pipeline(
            descriptor, ordered, pieces, lambda data: digest.update(data.data), lambda done: progress(what, done, size)
        )
    progress(what, size, size)
    return digest.hexdigest()


def _pieces(size: int, spans: Sequence[Span], piece: int) -> list[tuple[int, int]]:
    """Cuts at most `piece` bytes apart (or one unit, where that is more), never inside a unit."""
    found, begin, at = [], 0, 0
    while begin < size:
        end = min(begin + piece, size)
        while at < len(spans) and spans[at].end < end:
            at += 1
        if at < len(spans) and spans[at].begin < end < spans[at].end:
            span = spans[at]
            whole = span.begin + (end - span.begin) // span.unit * span.unit
            end = whole if whole > begin else min(begin + span.unit, span.end)
        found.append((begin, end))
        begin = end
    return found


def _pipeline(
    descriptor: int,
    spans: Sequence[Span],
    pieces: Sequence[tuple[int, int]],
    update: Callable[[np.ndarray], None],
    progress: Callable[[int], None],
) -> None:
    buffers = [np.empty(max(end - begin for begin, end in pieces), np.uint8) for _ in range(BUFFERS)]
    pending: list[tuple[Future[None], ...]] = [()] * BUFFERS
    with ThreadPoolExecutor(1, "hash") as hasher, ThreadPoolExecutor(1, "measure") as measurer:
        try:
            for number, (begin, end) in enumerate(pieces):
                slot = number % BUFFERS
                for future in pending[slot]:
                    future.result()
                data = buffers[slot][: end - begin]
                _fill(descriptor, data, begin)
                pending[slot] = hasher.submit(update, data), measurer.submit(_show, spans, begin, data)
                progress(begin)
            for futures in pending:
                for future in futures:
                    future.result()
        finally:
            hasher.shutdown(cancel_futures=True)
            measurer.shutdown(cancel_futures=True)


def _fill(descriptor: int, data: np.ndarray, offset: int) -> None:
    done = 0
    while done < len(data):
        count = os.preadv(descriptor, [data[done:].data], offset + done)
        if not count:
            raise CutShort
        done += count


def _show(spans: Sequence[Span], begin: int, data: np.ndarray) -> None:
    """Gives each span its part of the bytes from `begin` on."""
    end = begin + len(data)
    first = bisect_right(spans, begin, key=lambda span: span.end)
    for span in spans[first:]:
        if span.begin >= end:
            break
        low, high = max(span.begin, begin), min(span.end, end)
        span.take(low - span.begin, data[low - begin : high - begin])
