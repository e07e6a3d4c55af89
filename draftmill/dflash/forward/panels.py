"""Matrices in panels for the compiled kernel, and their products on every core (as many as NUMBA_NUM_THREADS says)."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba.core import config

from draftmill.dflash.forward import kernel
from draftmill.q4nx.encodings import Encoding, Kind

THREADS = int(config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
_PARTS = 4
"""Parts of the work for each thread, so that one whose core is busy elsewhere leaves its own to the others."""
_ROWS = 512
"""Rows multiplied at once: a stretch of them stays in a core's L2 cache."""
_FEW, _GROUP = 32, 16
"""Few rows take their panels one after the other, as they lie in memory; more rows some side by side, see `kernel`."""
_WORTH_SHARING = 1 << 20
"""Products of two numbers, below which waking a thread would take longer."""
_KINDS = {Kind.Q4_1: kernel.Q4_1, Kind.Q4_K: kernel.Q4_K}

_helpers = ThreadPoolExecutor(max(1, THREADS - 1), thread_name_prefix="draftmill-product")


Product = Callable[[str, np.ndarray], np.ndarray]


class Panels:
    """A matrix [N, K], its store as `kernel.multiply` takes it. A row's product depends on no other row."""

    def __init__(self, store: np.ndarray, kind: int, shape: tuple[int, int], dtype: np.dtype) -> None:
        self._store = store
        self._kind = kind
        self._outputs, self._columns = shape
        self._dtype = dtype

    def times(self, rows: np.ndarray) -> np.ndarray:
        """rows [n, K] -> [n, N]. Raises ValueError for rows of another width."""
        if rows.shape[1:] != (self._columns,):
            raise ValueError(f"rows must be [n, {self._columns}], not {list(rows.shape)}")
        rows = np.ascontiguousarray(rows, self._dtype)
        out = np.empty((len(rows), self._outputs), self._dtype)
        for at in range(0, len(rows), _ROWS):
            self._multiply(rows[at : at + _ROWS], out[at : at + _ROWS])
        return out

    def _multiply(self, rows: np.ndarray, out: np.ndarray) -> None:
        heights = -(-len(rows) // kernel.HEIGHT)
        blocks = np.empty((-(-self._columns // kernel.DEPTH), heights, kernel.DEPTH, kernel.HEIGHT), self._dtype)
        _divided(heights, lambda first, last: kernel.interleave(rows, blocks, first, last))
        group = _GROUP if len(rows) > _FEW else 1

        def multiply(first: int, last: int) -> None:
            together = min(group, last - first)
            kernel.multiply(self._store, self._kind, self._columns, blocks, out, first, last, together)

        _divided(len(self._store), multiply)


def plain(values: np.ndarray) -> Panels:
    """Of values [N, K], float32 or float64, which need not be kept."""
    outputs, columns = values.shape
    count, size = -(-outputs // kernel.PANEL), columns * kernel.PANEL * values.itemsize
    raw = np.empty(count * size + kernel.LINE, np.uint8)
    begin = -raw.ctypes.data % kernel.LINE
    store = raw[begin : begin + count * size].reshape(count, size)
    panels = store.view(values.dtype).reshape(count, columns, 2, kernel.PANEL // 2)

    def fill(first: int, last: int) -> None:
        for panel in range(first, last):
            own = values[panel * kernel.PANEL : (panel + 1) * kernel.PANEL]
            missing = kernel.PANEL - len(own)
            own = np.pad(own, ((0, missing), (0, 0))) if missing else own
            panels[panel] = own.reshape(-1, 2, columns).transpose(2, 1, 0)

    _divided(count, fill)
    return Panels(store, kernel.PLAIN, (outputs, columns), values.dtype)


def packed(encoding: Encoding, data: np.ndarray, dtype: np.dtype) -> Panels | None:
    """Of stored bytes, which are used where they lie; None for an encoding that the kernel does not decode."""
    if encoding.kind not in _KINDS:
        return None
    shape = encoding.rows, encoding.columns
    return Panels(data.reshape(encoding.tile_rows, -1), _KINDS[encoding.kind], shape, dtype)


def exact(product: Product) -> Product:
    """A product as it is: panels give a row the same bits whatever rows come with it."""
    return product


def matmul(rows: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """rows [m, n, K] . matrices [m, K, N] -> [m, n, N], as numpy's but without BLAS, whose threads would go on
    spinning on the cores that the next product needs."""
    out = np.empty((*rows.shape[:2], matrices.shape[2]), rows.dtype)

    def multiply(first: int, last: int) -> None:
        for each in range(first, last):
            kernel.multiply_strided(rows[each], matrices[each], out[each])

    if rows.size * matrices.shape[2] < _WORTH_SHARING:
        multiply(0, len(rows))
    else:
        _divided(len(rows), multiply)
    return out


def _divided(count: int, work: Callable[[int, int], None]) -> None:
    """work(first, last) for parts of 0..count, by every thread: whoever is ready takes the next part."""
    parts = min(count, THREADS * _PARTS)
    turns = itertools.count()

    def take() -> None:
        while (part := next(turns)) < parts:
            work(part * count // parts, (part + 1) * count // parts)

    others = [_helpers.submit(take) for _ in range(min(parts, THREADS) - 1)]
    take()
    for other in others:
        # One that never began is not waited for: its core is busy, or a fork has left the pool without its threads.
        if not other.cancel():
            other.result()
