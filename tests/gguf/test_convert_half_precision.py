import math
import struct

import numpy as np
import pytest

from draftmill.gguf.half_precision import all_finite, cast, stored

ALL_BITS = np.arange(1 << 16, dtype="<u2")


def widened(bits):
    """The value of 16 bf16 bits: they are the upper half of a binary32."""
    return struct.unpack(">f", struct.pack(">HH", bits, 0))[0]


def as_binary16(value):
    """Python's own conversion to IEEE binary16, which rounds to nearest even and refuses what is too large."""
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


def test_every_bf16_becomes_the_nearest_f16():
    got = cast(ALL_BITS, "BF16", "F16").view(np.uint16)
    wrong = [
        bits
        for bits in range(1 << 16)
        if not math.isnan(widened(bits)) and int(got[bits]) != as_binary16(widened(bits))
    ]
    assert wrong == []


def test_every_bf16_becomes_the_same_f32():
    got = cast(ALL_BITS, "BF16", "F32").view(np.uint32)
    assert got.tolist() == [bits << 16 for bits in range(1 << 16)]


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (1.0 + 2.0**-8, 0x3F80),  # halfway between 0x3f80 and 0x3f81: to the even one
        (1.0 + 3 * 2.0**-8, 0x3F82),  # halfway between 0x3f81 and 0x3f82: to the even one
        (1.0 + 2.0**-8 + 2.0**-20, 0x3F81),
        (-1.0 - 2.0**-8 - 2.0**-20, 0xBF81),
        (3.4e38, 0x7F80),  # beyond the largest bf16
        (2.0**-149, 0x0000),
    ],
)
def test_f32_is_rounded_to_the_nearest_even_bf16(value, bits):
    assert int(cast(np.array([value], np.float32), "F32", "BF16")[0]) == bits


def test_f16_reaches_bf16_through_f32():
    # 0x3c01 is 1 + 2^-10, nearest to 1. 0x3c0c is 1 + 12 * 2^-10, midway from 1 + 2^-7 to 1 + 2^-6: that one is even.
    halves = np.array([0x3C01, 0x3C0C], np.uint16).view(np.float16)
    assert cast(halves, "F16", "BF16").tolist() == [0x3F80, 0x3F82]


def test_stored_bytes_are_read_little_endian():
    assert stored(b"\x80\x3f", "BF16").tolist() == [0x3F80]
    assert stored(b"\x00\x3c", "F16").tolist() == [1.0]
    assert stored(b"\x00\x00\x80\x3f", "F32").tolist() == [1.0]


@pytest.mark.parametrize(
    ("kind", "finite", "infinite"),
    [
        ("F16", np.float16([65504, -65504, 6e-8]), np.float16([1, np.inf])),
        ("F32", np.float32([3.4e38, -3.4e38]), np.float32([np.nan, 1])),
        ("BF16", np.uint16([0x7F7F, 0xFF7F]), np.uint16([0x7FC0])),
    ],
)
def test_infinities_and_nan_are_seen_and_the_largest_values_pass(kind, finite, infinite):
    assert all_finite(finite, kind)
    assert not all_finite(infinite, kind)
    assert not all_finite(np.concatenate([finite, infinite]), kind)


def test_what_f16_cannot_hold_becomes_infinite():
    bits = np.array([0x477F, 0x4780], np.uint16)  # bf16 65280 and 65536
    halves = cast(bits, "BF16", "F16")
    assert halves.tolist() == [65280.0, np.inf]
