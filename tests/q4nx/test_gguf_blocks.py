"""Codes between Q4NX chunks and GGUF blocks; the gguf package's own dequantizers are the judge of every block."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from draftmill.outcome import Refused
from draftmill.q4nx import gguf_blocks, q4_k
from draftmill.q4nx.conversion import (
    Rounding,
    half_float_rounding,
    q4_1_to_gguf,
    q4_k_to_gguf,
    q8_to_gguf,
    super_blocks_outside,
)
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.from_gguf import gguf_to_q4nx
from draftmill.q4nx.matrix import decode, encode
from draftmill.q4nx.tiles import Workspace

Q4_1, Q4_K, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q8_0


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all())


def matrix(kind: Kind, rows: int, columns: int) -> tuple[Encoding, np.ndarray]:
    encoding = Encoding(kind, rows, columns, "grid")
    return encoding, encode(encoding, random().normal(0, 0.02, (rows, columns)).astype(np.float32))


def six_bit_matrix(rows: int, columns: int, *, times: int = 1, most: int = 63) -> tuple[Encoding, np.ndarray]:
    """A Q4_K matrix whose u8 factors are `times` numbers of up to `most`, under bfloat16 S and M in half range."""
    rng, tiles = random(), (rows // 32, columns // 256)
    s = (rng.integers(0x3A00, 0x3C00, (*tiles, 32))).astype(np.uint16)
    m = (rng.integers(0xBA00, 0xBC00, (*tiles, 32))).astype(np.uint16)
    u8 = [(times * rng.integers(0, most + 1, (*tiles, 32, 8))).astype(np.uint8) for _ in range(2)]
    codes = rng.integers(0, 16, (*tiles, 32, 256), np.uint8)
    return Encoding(Kind.Q4_K, rows, columns, "grid"), q4_k.pack(s, m, u8[0], u8[1], codes).reshape(-1)


def random_blocks(nbytes: int, halves: int) -> np.ndarray:
    """[32 rows, 3 blocks], all bytes at random but for the leading half floats, which are numbers."""
    blocks = random().integers(0, 256, (32, 3, nbytes), np.uint8)
    blocks[..., : 2 * halves].view("<f2")[...] = random().normal(0, 0.05, (32, 3, halves)).astype(np.float16)
    return blocks.reshape(32, -1)


@pytest.mark.parametrize(
    ("kind", "nbytes", "halves", "take", "put"),
    [
        (Q4_1, 20, 2, gguf_blocks.unpack_q4_1, gguf_blocks.pack_q4_1),
        (Q4_K, 144, 2, gguf_blocks.unpack_q4_k, gguf_blocks.pack_q4_k),
        (Q8_0, 34, 1, gguf_blocks.unpack_q8_0, gguf_blocks.pack_q8_0),
    ],
)
def test_a_block_taken_apart_is_what_gguf_reads_and_goes_together_again(kind, nbytes, halves, take, put) -> None:
    blocks = random_blocks(nbytes, halves)
    parts = take(blocks)
    assert (put(*parts) == blocks).all()
    codes = parts[-1].astype(np.float32)
    d = parts[0].astype(np.float32)
    if kind == Q4_K:
        scales, mins = (
            (half.astype(np.float32)[..., None] * u6).reshape(32, -1)
            for half, u6 in ((parts[0], parts[2]), (parts[1], parts[3]))
        )
        by_hand = np.repeat(scales, 32, 1) * codes - np.repeat(mins, 32, 1)
    elif kind == Q4_1:
        by_hand = np.repeat(d, 32, 1) * codes + np.repeat(parts[1].astype(np.float32), 32, 1)
    else:
        by_hand = np.repeat(d, 32, 1) * codes
    assert same_bits(by_hand, dequantize(blocks, kind))


@pytest.mark.parametrize("columns", [256, 1024])
@pytest.mark.parametrize(
    ("times", "most"),
    [
        pytest.param(1, 63, id="six bits as they are"),
        pytest.param(4, 63, id="eight bits that share a divisor, which moves into d"),
        pytest.param(1, 0, id="nothing but zeros"),
    ],
)
def test_super_blocks_keep_codes_and_weights_to_the_last_bit(columns, times, most) -> None:
    encoding, data = six_bit_matrix(64, columns, times=times, most=most)
    assert super_blocks_outside(encoding, data) == 0
    blocks = q4_k_to_gguf(encoding, data)
    assert same_bits(dequantize(blocks, Q4_K), decode(encoding, data))
    back, cost = gguf_to_q4nx(Q4_K, blocks, encoding)
    assert cost == Rounding(64 * columns // 32, 0, 0.0)
    assert same_bits(decode(encoding, back), decode(encoding, data))
    if times == 1:
        assert (back == data).all()


def test_eight_bit_factors_fit_no_super_block_and_are_counted() -> None:
    encoding, data = six_bit_matrix(64, 512)
    chunks = data.reshape(2, 2, -1)
    # Row 5 of one tile and row 31 of another: 64 and 1 share no divisor, and 64 needs seven bits.
    for tile, row in ((chunks[0, 1], 5), (chunks[1, 0], 31)):
        tile[row], tile[32 + row] = 64, 1
    assert super_blocks_outside(encoding, data) == 2
    with pytest.raises(Refused) as refused:
        q4_k_to_gguf(encoding, data)
    assert (refused.value.code, refused.value.refusals[0].measured) == ("q4nx.outside_super_block", 1)


@pytest.mark.parametrize("bits", [0x3000, 0x4800])
def test_a_row_factor_that_no_half_float_gives_fits_no_super_block(bits: int) -> None:
    # 0x3000 is 2^-31, below half floats; 0x4800 is 2^17, above them.
    encoding, data = six_bit_matrix(32, 256)
    data[4608:4610].view(np.uint16)[...] = bits
    assert super_blocks_outside(encoding, data) == 1


def test_q4_k_as_q4_1_blocks_keeps_codes_and_states_what_half_floats_cost() -> None:
    encoding, data = matrix(Kind.Q4_K, 64, 512)
    blocks, cost = q4_1_to_gguf(encoding, data)
    assert cost == half_float_rounding(encoding, data)
    assert cost.groups == 64 * 16
    assert 0 < cost.inexact <= cost.groups
    moved = abs(dequantize(blocks, Q4_1).astype(np.float64) - decode(encoding, data))
    # Both sides round a weight of below 1/8 to float32 once more.
    assert 0 < moved.max() <= cost.bound + 2.0**-27
    _, _, codes = gguf_blocks.unpack_q4_1(blocks)
    tiles = q4_k.codes(data.reshape(2, 2, -1), Workspace())
    assert (codes == tiles.swapaxes(1, 2).reshape(64, 512)).all()


@pytest.mark.parametrize("kind", [Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT])
def test_q8_goes_to_gguf_and_back_bit_for_bit(kind: Kind) -> None:
    encoding, data = matrix(kind, 64, 288)
    blocks, cost = q8_to_gguf(encoding, data)
    assert cost == Rounding(64 * 9, 0, 0.0)
    assert same_bits(dequantize(blocks, Q8_0), decode(encoding, data))
    assert (gguf_to_q4nx(Q8_0, blocks, encoding)[0] == data).all()


@pytest.mark.parametrize("columns", [512, 576, 32])
def test_q4_1_goes_to_gguf_and_back_bit_for_bit_padding_included(columns: int) -> None:
    encoding, data = matrix(Kind.Q4_1, 64, columns)
    blocks, _ = q4_1_to_gguf(encoding, data)
    back, cost = gguf_to_q4nx(Q4_1, blocks, encoding)
    assert cost == Rounding(64 * columns // 32, 0, 0.0)
    assert (back == data).all()


def test_half_floats_of_others_are_rounded_to_bfloat16_and_counted() -> None:
    blocks = quantize(random().normal(0, 0.02, (32, 256)).astype(np.float32), Q4_1)
    encoding = Encoding(Kind.Q4_1, 32, 256, "flat")
    back, cost = gguf_to_q4nx(Q4_1, blocks, encoding)
    scales, minimums, _ = gguf_blocks.unpack_q4_1(blocks)
    # A half float is a bfloat16 when its last three significant bits are zero (none here is subnormal).
    lost = (scales.view(np.uint16) & 7 != 0) | (minimums.view(np.uint16) & 7 != 0)
    assert (cost.groups, cost.inexact) == (256, int(lost.sum()))
    assert cost.inexact > 200
    moved = abs(decode(encoding, back).astype(np.float64) - dequantize(blocks, Q4_1))
    assert 0 < moved.max() <= cost.bound + 2.0**-27
    assert (q4_1_to_gguf(encoding, back)[0].reshape(32, 8, 20)[..., 4:] == blocks.reshape(32, 8, 20)[..., 4:]).all()


def test_q4_k_blocks_of_others_keep_codes_and_six_bit_factors() -> None:
    blocks = random_blocks(144, 2)
    encoding = Encoding(Kind.Q4_K, 32, 768, "flat")
    back, cost = gguf_to_q4nx(Q4_K, blocks, encoding)
    again = q4_k_to_gguf(encoding, back).reshape(32, 3, 144)
    assert (again[..., 4:] == blocks.reshape(32, 3, 144)[..., 4:]).all()
    moved = abs(decode(encoding, back).astype(np.float64) - dequantize(blocks, Q4_K))
    assert 0 < moved.max() <= cost.bound + 2.0**-18  # weights of up to 2^6 here, rounded to float32 on both sides


def test_q4_k_blocks_become_q4_1_chunks_with_the_same_codes() -> None:
    blocks = random_blocks(144, 2)
    encoding = Encoding(Kind.Q4_1, 32, 768, "flat")
    back, cost = gguf_to_q4nx(Q4_K, blocks, encoding)
    moved = abs(decode(encoding, back).astype(np.float64) - dequantize(blocks, Q4_K))
    assert 0 < moved.max() <= cost.bound + 2.0**-18
    codes = gguf_blocks.unpack_q4_k(blocks)[-1]
    assert (gguf_blocks.unpack_q4_1(q4_1_to_gguf(encoding, back)[0])[-1] == codes).all()


@pytest.mark.parametrize(
    ("kind", "encoding", "says"),
    [
        (Q8_0, Encoding(Kind.Q4_1, 32, 256), "does not take the codes"),
        (GGMLQuantizationType.Q4_0, Encoding(Kind.Q4_1, 32, 256), "does not take the codes"),
        (Q4_1, Encoding(Kind.Q4_1, 64, 256), "rows"),
        (Q4_1, Encoding(Kind.Q4_1, 32, 512), "columns"),
    ],
)
def test_codes_of_another_kind_or_size_are_not_taken(kind, encoding, says) -> None:
    with pytest.raises(ValueError, match=says):
        gguf_to_q4nx(kind, np.zeros((32, 8 * 20), np.uint8), encoding)


def test_only_whole_super_blocks_of_q4_k_become_q4_k() -> None:
    for encoding, data in (matrix(Kind.Q4_K, 32, 576), matrix(Kind.Q4_1, 32, 256)):
        with pytest.raises(ValueError, match="whole super-blocks"):
            q4_k_to_gguf(encoding, data)
