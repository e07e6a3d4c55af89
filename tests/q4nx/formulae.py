"""A slow, independent decoder: one weight at a time by the published byte addresses, calling nothing of the product."""

import struct

import numpy as np


def bf16(raw: bytes, at: int) -> np.float32:
    (value,) = struct.unpack("<f", b"\0\0" + bytes(raw[at : at + 2]))
    return np.float32(value)


def nibble(byte: int, row: int) -> np.float32:
    return np.float32(byte >> 4 if row % 2 else byte & 15)


def q4_1(raw: bytes, r: int, c: int) -> np.float32:
    i = 32 * (c // 32) + r
    code = nibble(raw[1024 + 2048 * (r // 16) + 8 * c + (r % 16) // 2], r)
    return np.float32(code * bf16(raw, 2 * i)) + bf16(raw, 512 + 2 * i)


def q4_k(raw: bytes, r: int, c: int) -> np.float32:
    i = 32 * (c // 32) + r
    scale = np.float32(bf16(raw, 4608 + 2 * r) * np.float32(raw[i]))
    minimum = np.float32(bf16(raw, 4672 + 2 * r) * np.float32(raw[256 + i]))
    return np.float32(scale * nibble(raw[512 + 16 * c + r // 2], r)) + minimum


def _signed(byte: int) -> np.float32:
    return np.float32(byte - 256 if byte > 127 else byte)


def q8_column_major(raw: bytes, r: int, c: int) -> np.float32:
    return bf16(raw, 2 * (32 * (c // 32) + r)) * _signed(raw[512 + 32 * c + r])


def q8_half_split(raw: bytes, r: int, c: int) -> np.float32:
    return bf16(raw, 2 * (32 * (c // 32) + r)) * _signed(raw[512 + 4096 * (r // 16) + 16 * c + r % 16])


TILES = {
    "q4_1": (5120, q4_1),
    "q4_k": (4736, q4_k),
    "q8 column-major": (8704, q8_column_major),
    "q8 half-split": (8704, q8_half_split),
}


def matrix(kind: str, data: bytes, n: int, k: int) -> np.ndarray:
    """The weights [n, k] of packed tiles, row-major over the grid, padding left out."""
    chunk, weight = TILES[kind]
    across = -(-k // 256)
    out = np.empty((n, k), np.float32)
    with np.errstate(all="ignore"):
        for row in range(n):
            for column in range(k):
                tile = (row // 32) * across + column // 256
                out[row, column] = weight(data[tile * chunk : (tile + 1) * chunk], row % 32, column % 256)
    return out


def block_matrix(data: bytes, n: int, k: int) -> np.ndarray:
    return np.array(
        [[bf16(data, 2 * ((row // 32) * k * 32 + c * 32 + row % 32)) for c in range(k)] for row in range(n)], np.float32
    )
