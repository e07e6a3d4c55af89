"""Damage inside tensors, of a part of their tiles or values: changes that a look at the whole does not show."""

from collections.abc import Callable

import numpy as np

from draftmill.dflash.selftest_changes import Change, in_tensors
from draftmill.dflash.selftest_specimen import Tensors, bytes_of
from draftmill.q4nx import q4_1, q4_k
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import encode


def in_tiles(name: str, chunk: int, change: Callable[[np.ndarray], object]) -> Change:
    """Changes the tiles of a packed tensor, uint8 [tiles, chunk bytes], in place."""
    return in_tensors(lambda tensors: change(bytes_of(tensors[name]).reshape(-1, chunk)))


def no_minimums(name: str, tiles: int) -> Change:
    """Of the first tiles of a q4_1 tensor."""
    return in_tiles(name, q4_1.CHUNK_BYTES, lambda chunks: chunks[:tiles, q4_1.MINIMUMS].fill(0))


def halved_minimums(name: str, tiles: int) -> Change:
    """Of the first tiles of a q4_1 tensor: one less in the exponent."""

    def change(chunks: np.ndarray) -> None:
        bits = chunks[:tiles, q4_1.MINIMUMS].view("<u2")
        bits -= np.uint16(0x80)

    return in_tiles(name, q4_1.CHUNK_BYTES, change)


def no_even_rows(name: str) -> Change:
    """The codes of every second row of a q4_1 tensor are zero: the low halves of its bytes."""

    def change(chunks: np.ndarray) -> None:
        chunks[:, q4_1.MINIMUMS.stop :] &= 0xF0

    return in_tiles(name, q4_1.CHUNK_BYTES, change)


def no_codes(name: str) -> Change:
    """Of one tile of a Q4_K tensor, in half of its columns."""
    half = q4_k.MINIMUMS.stop + 2048
    return in_tiles(name, q4_k.CHUNK_BYTES, lambda chunks: chunks[1, half : q4_k.ROW_SCALES.start].fill(0))


def one_tile(name: str, chunk: int) -> Change:
    """The first tile stands in place of all."""

    def change(chunks: np.ndarray) -> None:
        chunks[:] = chunks[0]

    return in_tiles(name, chunk, change)


def copied(name: str, source: str) -> Change:
    """Another tensor's bytes stand in this one."""

    def change(tensors: Tensors) -> None:
        bytes_of(tensors[name])[:] = bytes_of(tensors[source])

    return in_tensors(change)


def no_column_of_tiles(name: str, rows: int) -> Change:
    """The first 256 columns of a Q4_K matrix hold zeros, as an encoder stores them."""

    def change(tensors: Tensors) -> None:
        zeros = encode(Encoding(Kind.Q4_K, rows, 256, "flat"), np.zeros((rows, 256), np.float32))
        grid = bytes_of(tensors[name]).reshape(rows // 32, -1, q4_k.CHUNK_BYTES)
        grid[:, 0] = zeros.reshape(-1, q4_k.CHUNK_BYTES)

    return in_tensors(change)


def zero_tap(name: str, columns: int, first: int, last: int) -> Change:
    """Some columns of a fusion matrix in blocks are zero."""
    return in_tensors(lambda tensors: bytes_of(tensors[name]).reshape(-1, columns, 64)[:, first:last].fill(0))


def zero_rows(name: str, width: int, share: float) -> Change:
    """A share of the rows of a plain BF16 matrix, spread over it, is zero."""

    def change(tensors: Tensors) -> None:
        rows = bytes_of(tensors[name]).reshape(-1, 2 * width)
        rows[np.random.default_rng(1).random(len(rows)) < share] = 0

    return in_tensors(change)


def partly_half_floats(name: str, begin: float, end: float, zeros: float = 0.0) -> Change:
    """Stores the values between two shares of a bfloat16 tensor as half floats, of which some are zero."""

    def change(tensors: Tensors) -> None:
        stored = bytes_of(tensors[name]).view("<u2")
        part = stored[int(begin * len(stored)) : int(end * len(stored))]
        part[:] = (part.astype(np.uint32) << 16).view(np.float32).astype("<f2").view("<u2")
        part[np.random.default_rng(1).random(len(part)) < zeros] = 0

    return in_tensors(change)


def in_column_blocks(name: str, rows: int, columns: int) -> Change:
    """Stores a fusion matrix in blocks of 32 columns, [K / 32, N, 32]."""

    def change(tensors: Tensors) -> None:
        stored = bytes_of(tensors[name]).view("<u2")
        matrix = stored.reshape(rows // 32, columns, 32).swapaxes(1, 2).reshape(rows, columns)
        stored[:] = matrix.reshape(rows, columns // 32, 32).swapaxes(0, 1).reshape(-1)

    return in_tensors(change)
