"""Decoding speed of Q4NX tiles on one thread, beside the gguf package on the same number of weights in the same run.

Prints GB/s of float32 made, per encoding: draftmill's whole-matrix decode into a buffer the caller gives, gguf's
dequantize (which allocates its result), the ratio, and a plain copy of the result as the memory's own limit. Times are
CPU time of the thread, so that other load on the machine counts less; the best of several passes, taken in turns.

    python benchmarks/q4nx_decode.py [ROWS COLUMNS]    without sizes: q_proj of the Bolt draft, gate_proj of the 27B one
"""

import sys
import time
from collections.abc import Callable

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from draftmill.q4nx.conversion import q4_1_to_gguf
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import decode, encode

PASSES = 9
SHAPES = ((4096, 2560), (17408, 5120))
GGUF_TYPES = {
    Kind.Q4_1: GGMLQuantizationType.Q4_1,
    Kind.Q4_K: GGMLQuantizationType.Q4_K,
    Kind.Q8_COLUMN_MAJOR: GGMLQuantizationType.Q8_0,
}
BLOCKS = {Kind.Q4_1: (32, 20), Kind.Q4_K: (256, 144), Kind.Q8_COLUMN_MAJOR: (32, 34)}


def seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def stored(encoding: Encoding) -> np.ndarray:
    """Quantised normal weights: one band of 32 rows, repeated."""
    band = np.random.default_rng(0).normal(0, 0.02, (32, encoding.columns)).astype(np.float32)
    return np.tile(encode(Encoding(encoding.kind, 32, encoding.columns, "flat"), band), encoding.tile_rows)


def gguf_rows(encoding: Encoding, data: np.ndarray) -> np.ndarray:
    """GGUF rows of as many weights. Only q4_1 converts; elsewhere the half floats are made tame numbers."""
    if encoding.kind == Kind.Q4_1:
        return q4_1_to_gguf(encoding, data)[0]
    weights, size = BLOCKS[encoding.kind]
    blocks = np.random.default_rng(0).integers(0, 64, (encoding.rows, encoding.columns // weights, size), np.uint8)
    blocks[..., 1:4:2] = 0x20
    return blocks.reshape(encoding.rows, -1)


def compare(rows: int, columns: int) -> None:
    out = np.ones((rows, columns), np.float32)
    other = np.empty_like(out)
    size = out.nbytes / 1e9
    print(f"{rows} x {columns}, {size:.3f} GB of float32, numpy {np.__version__}, best of {PASSES} passes, CPU time")
    for kind, gguf_type in GGUF_TYPES.items():
        encoding = Encoding(kind, rows, columns, "flat")
        data = stored(encoding)
        blocks = gguf_rows(encoding, data)
        ours, theirs, copies = [], [], []
        for _ in range(PASSES):
            ours.append(seconds(lambda e=encoding, d=data: decode(e, d, out)))
            theirs.append(seconds(lambda b=blocks, t=gguf_type: dequantize(b, t)))
            copies.append(seconds(lambda: np.copyto(other, out)))
        mill, gguf, copy = (size / min(times) for times in (ours, theirs, copies))
        ratio = f"ratio {mill / gguf:4.1f}"
        print(
            f"{kind:16} draftmill {mill:5.2f} GB/s   gguf {gguf:5.2f} GB/s   {ratio}   copy {copy:.2f} GB/s", flush=True
        )


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:3]]
    for rows, columns in [sizes] if sizes else SHAPES:
        compare(rows, columns)


if __name__ == "__main__":
    main()
