import math
import struct

import numpy as np
import pytest

from draftmill.outcome import Refused
from draftmill.q4nx.header import Entry
from draftmill.q4nx.scalars import number_bytes, read_numbers


def numbers(dtype: str, shape: tuple[int, ...], raw: bytes) -> tuple[int | float, ...]:
    return read_numbers(Entry("s", dtype, shape, 0, len(raw)), np.frombuffer(raw, np.uint8))


@pytest.mark.parametrize(
    ("dtype", "raw", "expected"),
    [
        ("I8", b"\xff", -1),
        ("U8", b"\xff", 255),
        ("I16", struct.pack("<h", -300), -300),
        ("U16", struct.pack("<H", 65535), 65535),
        ("I32", struct.pack("<i", -(2**31)), -(2**31)),
        ("U32", struct.pack("<I", 2**32 - 1), 2**32 - 1),
        ("I64", struct.pack("<q", -(2**62)), -(2**62)),
        ("U64", struct.pack("<Q", 2**64 - 1), 2**64 - 1),
        ("F16", struct.pack("<e", 0.5), 0.5),
        ("BF16", b"\x80\x3f", 1.0),
        ("F32", struct.pack("<f", 1e-6), struct.unpack("<f", struct.pack("<f", 1e-6))[0]),
        ("F64", struct.pack("<d", 1e-6), 1e-6),
    ],
)
def test_a_scalar_is_read_under_each_plain_label(dtype: str, raw: bytes, expected: float) -> None:
    assert numbers(dtype, (), raw) == (expected,)
    assert type(numbers(dtype, (1,), raw)[0]) is type(expected)
    assert number_bytes(dtype, [expected]).tobytes() == raw


def test_a_small_vector_is_read_in_order() -> None:
    assert numbers("I32", (5,), struct.pack("<5i", 5, 11, 17, 23, 35)) == (5, 11, 17, 23, 35)


def test_not_a_number_is_handed_on() -> None:
    assert math.isnan(numbers("BF16", (), b"\xc0\x7f")[0])


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        numbers("Q4NX", (1,), b"\0")
    assert refused.value.code == "q4nx.dtype_unexpected"


def test_a_matrix_is_no_scalar() -> None:
    assert len(numbers("I8", (64,), bytes(64))) == 64
    with pytest.raises(Refused) as refused:
        numbers("I8", (5, 13), bytes(65))
    assert refused.value.code == "q4nx.not_scalar"


def test_a_number_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(OverflowError):
        number_bytes("I8", [128])
