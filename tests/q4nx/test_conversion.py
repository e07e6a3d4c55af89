from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from draftmill.outcome import Refused
from draftmill.q4nx import q4_1
from draftmill.q4nx.conversion import Rounding, q4_1_to_gguf, q4_k_to_q4_1
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import decode, encode


def matrix(kind: Kind, rows: int, columns: int) -> tuple[Encoding, np.ndarray]:
    encoding = Encoding(kind, rows, columns, "grid")
    values = np.random.default_rng(0).normal(0, 0.02, (rows, columns)).astype(np.float32)
    return encoding, encode(encoding, values)


def half_ulp_of_bf16(values: np.ndarray) -> np.ndarray:
    """A bfloat16 has 8 significant bits: in [2^e, 2^(e+1)) its steps are 2^(e-7), half of one 2^(e-8)."""
    _, exponent = np.frexp(values.astype(np.float64))
    return np.where(values == 0, 0, np.ldexp(1.0, exponent - 9))


def factors(chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S x scale and M x min of Q4_K chunks in float64, [tiles, 32, 8], by the byte addresses."""
    rows = chunks[:, 4608:4736].copy().view(np.uint16).astype(np.uint32) << 16
    s, m = rows.view(np.float32).astype(np.float64).reshape(-1, 2, 32).transpose(1, 0, 2)
    u8 = chunks[:, :512].reshape(-1, 2, 8, 32).astype(np.float64)
    return (u8[:, 0] * s[:, None]).transpose(0, 2, 1), (u8[:, 1] * m[:, None]).transpose(0, 2, 1)


def test_q4_k_becomes_q4_1_within_its_stated_bound() -> None:
    encoding, data = matrix(Kind.Q4_K, 96, 1024)
    chunks = data.reshape(-1, 4736)
    converted = q4_k_to_q4_1(chunks)
    to = Encoding(Kind.Q4_1, 96, 1024, "grid")
    moved = abs(decode(to, converted.reshape(-1)).astype(np.float64) - decode(encoding, data))
    scales, minimums = factors(chunks)
    bound = 15 * half_ulp_of_bf16(scales) + half_ulp_of_bf16(minimums)
    per_weight = np.repeat(bound, 32, axis=2).reshape(3, 4, 32, 256).swapaxes(1, 2).reshape(96, 1024)
    # Both sides round their sum to float32 once more: half an ulp of at most 2^-3 each.
    assert (moved <= per_weight + 2.0**-27).all()
    assert moved.max() > per_weight.min() / 4
    assert np.sqrt(np.mean(moved**2) / np.mean(decode(encoding, data) ** 2)) < 0.01


def test_q4_k_with_factors_that_bfloat16_holds_converts_exactly() -> None:
    _, data = matrix(Kind.Q4_K, 32, 256)
    chunk = data.copy()
    chunk[4608:4672].view(np.uint16)[...] = 0x3C00
    chunk[4672:4736].view(np.uint16)[...] = 0xBC00
    encoding, to = Encoding(Kind.Q4_K, 32, 256, "flat"), Encoding(Kind.Q4_1, 32, 256, "flat")
    assert (decode(to, q4_k_to_q4_1(chunk)) == decode(encoding, chunk)).all()


def test_the_codes_are_moved_as_the_identity_of_the_format_says() -> None:
    chunk = np.random.default_rng(0).integers(0, 256, 4736, np.uint8)
    chunk[4608:].view(np.uint16)[...] = 0x3F80
    converted = q4_k_to_q4_1(chunk)
    for c in range(256):
        for h in range(2):
            for j in range(8):
                assert converted[1024 + 2048 * h + 8 * c + j] == chunk[512 + 16 * c + 8 * h + j]


@pytest.mark.parametrize("bits", [0x7F80, 0x7FFF, 0x7F7F])
def test_factors_that_are_no_numbers_are_not_converted(bits: int) -> None:
    _, data = matrix(Kind.Q4_K, 32, 256)
    chunk = data.copy()
    chunk[4608 + 2 * 3 :][:2].view(np.uint16)[...] = bits
    with pytest.raises(Refused) as refused:
        q4_k_to_q4_1(chunk)
    assert refused.value.code == "q4nx.not_finite"


@pytest.mark.parametrize("columns", [512, 288, 32, 256 * 65])
def test_gguf_reads_the_same_weights_to_the_last_bit(columns: int) -> None:
    encoding, data = matrix(Kind.Q4_1, 64, columns)
    blocks, cost = q4_1_to_gguf(encoding, data)
    assert blocks.shape == (64, columns // 32 * 20)
    assert cost == Rounding(64 * columns // 32, 0, 0.0)
    judged = dequantize(blocks, GGMLQuantizationType.Q4_1)
    assert (judged.view(np.uint32) == decode(encoding, data).view(np.uint32)).all()


def one_tile(scale: int, minimum: int) -> tuple[Encoding, np.ndarray]:
    """All groups with these bfloat16 bits, codes at random."""
    codes = np.random.default_rng(0).integers(0, 16, (32, 256), np.uint8)
    planes: list[Any] = [np.full((32, 8), bits, np.uint16) for bits in (scale, minimum)]
    return Encoding(Kind.Q4_1, 32, 256, "flat"), q4_1.pack(*planes, codes).reshape(-1)


@pytest.mark.parametrize(
    ("scale", "minimum"),
    [
        # 2^-17 x (1 + 127/128) = 255 x 2^-24: the smallest binade whose every bfloat16 is a (subnormal) half float.
        (0x377F, 0xB77F),
        # 65280 = 2^15 x (1 + 127/128), the largest bfloat16 below 65504.
        (0x477F, 0xC77F),
    ],
)
def test_the_edges_of_the_half_float_range_are_exact(scale: int, minimum: int) -> None:
    encoding, data = one_tile(scale, minimum)
    blocks, cost = q4_1_to_gguf(encoding, data)
    assert (cost.inexact, cost.bound) == (0, 0.0)
    assert (dequantize(blocks, GGMLQuantizationType.Q4_1) == decode(encoding, data)).all()


def test_below_the_range_the_cost_is_stated_and_kept() -> None:
    # 2^-18 x 255/128 = 127.5 x 2^-24 rounds to 128 x 2^-24: off by 2^-25, the most there is.
    encoding, data = one_tile(0x36FF, 0xB6FF)
    blocks, cost = q4_1_to_gguf(encoding, data)
    assert cost == Rounding(256, 256, 15 * 2.0**-25 + 2.0**-25)
    moved = abs(dequantize(blocks, GGMLQuantizationType.Q4_1).astype(np.float64) - decode(encoding, data))
    assert 0 < moved.max() <= cost.bound


@pytest.mark.parametrize(("scale", "minimum"), [(0x4780, 0), (0x3F80, 0xC780), (0x7FC0, 0), (0x3F80, 0xFF80)])
def test_what_half_floats_cannot_hold_is_refused(scale: int, minimum: int) -> None:
    # 0x4780 is 65536.
    encoding, data = one_tile(scale, minimum)
    with pytest.raises(Refused) as refused:
        q4_1_to_gguf(encoding, data)
    assert refused.value.code == "q4nx.outside_half_range"
    assert refused.value.refusals[0].measured == 256


def test_columns_that_do_not_fill_blocks_are_refused() -> None:
    encoding, data = matrix(Kind.Q4_1, 32, 300)
    with pytest.raises(Refused) as refused:
        q4_1_to_gguf(encoding, data)
    assert refused.value.code == "q4nx.columns_not_whole_groups"


def test_only_four_bit_codes_become_q4_1_blocks() -> None:
    encoding, data = matrix(Kind.Q8_HALF_SPLIT, 32, 256)
    with pytest.raises(ValueError, match="4-bit matrix"):
        q4_1_to_gguf(encoding, data)
