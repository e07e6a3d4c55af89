"""Single tiles, packed and decoded by hand: every address and every sum is written out here."""

import struct

import numpy as np
import pytest

from draftmill.q4nx import q4_1
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import decode

BF16 = {"1": 0x3F80, "2": 0x4000, "0.5": 0x3F00, "-1": 0xBF80, "-4": 0xC080, "0.25": 0x3E80, "1.0078125": 0x3F81}


def put(chunk: bytearray, at: int, value: str) -> None:
    struct.pack_into("<H", chunk, at, BF16[value])


def weights(kind: Kind, chunk: bytearray, columns: int = 256) -> np.ndarray:
    return decode(Encoding(kind, 32, columns, "flat"), np.frombuffer(bytes(chunk), np.uint8))


def test_q4_1_puts_scale_minimum_and_code_where_the_format_says() -> None:
    chunk = bytearray(5120)
    # Row 19, column 70: group 2, i = 32 * 2 + 19 = 83. Half 1, byte 1024 + 2048 + 8 * 70 + (19 - 16) // 2 = 3633, high.
    put(chunk, 2 * 83, "0.5")
    put(chunk, 512 + 2 * 83, "-4")
    chunk[3633] = 0xB0
    decoded = weights(Kind.Q4_1, chunk)
    assert decoded[19, 70] == 11 * 0.5 - 4
    # The other columns of the group have code 0 and so the minimum; the low half of the byte is row 18, without scale.
    assert decoded[19, 64] == decoded[19, 95] == -4
    assert np.count_nonzero(decoded) == 32


def test_q4_1_low_half_is_the_even_row() -> None:
    chunk = bytearray(5120)
    # Row 0 and row 1 of column 0, i = 0 and 1, share byte 1024.
    put(chunk, 0, "1")
    put(chunk, 2, "2")
    chunk[1024] = 0x73
    decoded = weights(Kind.Q4_1, chunk)
    assert decoded[0, 0] == 3
    assert decoded[1, 0] == 14
    assert np.count_nonzero(decoded) == 2


def test_q4_k_puts_factors_and_code_where_the_format_says() -> None:
    chunk = bytearray(4736)
    # Row 5, column 255: group 7, i = 32 * 7 + 5 = 229. Code byte 512 + 16 * 255 + 2 = 4594, high half.
    chunk[229] = 200
    chunk[256 + 229] = 3
    chunk[4594] = 0x90
    put(chunk, 4608 + 2 * 5, "0.25")
    put(chunk, 4672 + 2 * 5, "-4")
    decoded = weights(Kind.Q4_K, chunk)
    assert decoded[5, 255] == 0.25 * 200 * 9 - 4 * 3
    assert decoded[5, 224] == -12
    assert np.count_nonzero(decoded) == 32


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (Kind.Q8_COLUMN_MAJOR, 512 + 32 * 40 + 21),
        (Kind.Q8_HALF_SPLIT, 512 + 4096 + 16 * 40 + 5),
    ],
)
def test_each_order_of_q8_codes_has_its_own_address(kind: Kind, address: int) -> None:
    chunk = bytearray(8704)
    # Row 21, column 40: group 1, i = 32 + 21 = 53; code 0xFD is -3.
    put(chunk, 2 * 53, "0.5")
    chunk[address] = 0xFD
    decoded = weights(kind, chunk)
    assert decoded[21, 40] == -1.5
    assert np.count_nonzero(decoded) == 1


def test_block_matrix_has_rows_innermost() -> None:
    # 64 x 3: row 33, column 2 is element 1 * 3 * 32 + 2 * 32 + 1 = 161, byte 322.
    data = bytearray(64 * 3 * 2)
    put(data, 322, "-1")
    decoded = decode(Encoding(Kind.BLOCK_BF16, 64, 3), np.frombuffer(bytes(data), np.uint8))
    assert decoded[33, 2] == -1
    assert np.count_nonzero(decoded) == 1


def test_the_sum_is_rounded_once_to_float32() -> None:
    chunk = bytearray(5120)
    put(chunk, 0, "1.0078125")
    # 15 x 1.0078125 = 15.1171875. A float32 there has steps of 2^-20. 0x3500 is 2^-21, half a step: the tie goes to the
    # even neighbour, which is 15.1171875. 0x3540 is 1.5 x 2^-21, three quarters of a step, and goes up.
    struct.pack_into("<H", chunk, 512, 0x3500)
    chunk[1024] = 0x0F
    assert weights(Kind.Q4_1, chunk)[0, 0] == np.float32(15.1171875)
    struct.pack_into("<H", chunk, 512, 0x3540)
    assert weights(Kind.Q4_1, chunk)[0, 0] == np.float32(15.1171875 + 2.0**-20)


def test_q4_k_multiplies_row_and_group_scale_before_the_code() -> None:
    chunk = bytearray(4736)
    chunk[0] = 255
    # S is the largest bfloat16: S x 255 overflows to infinity, and infinity x code 0 is not a number. Taking
    # scale x code first would give 0.
    struct.pack_into("<H", chunk, 4608, 0x7F7F)
    assert np.isnan(weights(Kind.Q4_K, chunk)[0, 0])


def test_packing_by_parts_writes_the_same_addresses() -> None:
    scales = np.zeros((32, 8), np.uint16)
    minimums = np.zeros((32, 8), np.uint16)
    codes = np.zeros((32, 256), np.uint8)
    scales[19, 2], minimums[19, 2], codes[19, 70] = BF16["0.5"], BF16["-4"], 11
    expected = bytearray(5120)
    put(expected, 2 * 83, "0.5")
    put(expected, 512 + 2 * 83, "-4")
    expected[3633] = 0xB0
    assert q4_1.pack(scales, minimums, codes).tobytes() == bytes(expected)
