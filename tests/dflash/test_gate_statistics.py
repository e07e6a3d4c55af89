"""What the gate measures in its pass, against plain arithmetic over the same bytes, however they are cut."""

import hashlib
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.dflash.gate_order import Order, find_order
from draftmill.dflash.gate_packed import PackedStatistics
from draftmill.dflash.gate_plain import PlainStatistics
from draftmill.dflash.gate_reading import CutShort, Span, read_through
from draftmill.dflash.gate_repeats import Repeated, find_repeats
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import encode

RNG = np.random.default_rng(7)


def bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def fed(statistics: Any, data: np.ndarray, unit: int, sizes: list[int]) -> Any:
    at = 0
    while at < len(data):
        for size in sizes:
            part = data[at : at + size * unit]
            if len(part):
                statistics.take(at, part.copy())
            at += size * unit
    return statistics


def weights(rows: int, columns: int) -> np.ndarray:
    return RNG.normal(0, 0.02, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize("sizes", [[1], [3, 1, 5], [1000]])
def test_factors_of_q4_1_are_those_at_the_published_addresses(sizes: list[int]) -> None:
    encoding = Encoding(Kind.Q4_1, 64, 600, "flat")
    data = encode(encoding, weights(64, 600))
    found = fed(PackedStatistics(encoding), data, 5120, sizes)
    chunks = data.reshape(-1, 5120)
    scales, minimums = bf16(chunks[:, :512].copy().view("<u2")), bf16(chunks[:, 512:1024].copy().view("<u2"))
    # 600 columns are 2 tiles and 88 columns of a third: of its 8 groups the first 3 hold weights.
    kept = np.ones((6, 8, 32), bool)
    kept[2::3, 3:] = False
    ratios = (minimums / scales).reshape(6, 8, 32)[kept]
    assert found.groups == 6 * 256
    assert sum(found.ratios().counts) == kept.sum()
    assert found.ratio_median == pytest.approx(np.median(ratios), abs=1 / 64)
    assert found.scale_median == pytest.approx(np.median(scales.reshape(6, 8, 32)[kept]), rel=0.1)
    halves = data.view("<f2").astype(np.float64)
    assert found.half_shares[1] == np.mean(~np.isfinite(halves))
    assert found.half_shares[0] == np.mean(np.isfinite(halves) & (np.abs(halves) > 100))


@pytest.mark.parametrize("sizes", [[1], [3, 1, 5], [1000]])
def test_factors_of_q4_k_are_those_at_the_published_addresses(sizes: list[int]) -> None:
    encoding = Encoding(Kind.Q4_K, 64, 512, "grid")
    data = encode(encoding, weights(64, 512))
    found = fed(PackedStatistics(encoding), data, 4736, sizes)
    chunks = data.reshape(-1, 4736)
    row_scales = bf16(chunks[:, 4608:4672].copy().view("<u2"))[:, None]
    row_minimums = bf16(chunks[:, 4672:].copy().view("<u2"))[:, None]
    scales = chunks[:, :256].reshape(-1, 8, 32) * row_scales
    minimums = chunks[:, 256:512].reshape(-1, 8, 32) * row_minimums
    assert found.ratio_median == pytest.approx(np.median(minimums / scales), abs=1 / 64)
    assert found.scale_median == pytest.approx(np.median(scales), rel=0.1)


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q4_K])
def test_every_bad_factor_is_counted_wherever_the_tile_lies(kind: Kind) -> None:
    encoding = Encoding(kind, 32 * 400, 256, "flat")
    chunks = np.tile(encode(Encoding(kind, 32, 256, "flat"), weights(32, 256)), 400).reshape(400, -1)
    at, groups = (0, 1) if kind == Kind.Q4_1 else (4608, 8)
    for tile in (3, 177, 399):
        chunks[tile, at : at + 2] = [0xC0, 0x7F]
    found = fed(PackedStatistics(encoding), chunks.reshape(-1), chunks.shape[1], [50])
    assert found.faults == {"scales_not_finite": 3 * groups}
    assert found.first_bad["scales_not_finite"] == [3 * 32, 0]


def test_negative_zero_is_not_positive() -> None:
    encoding = Encoding(Kind.Q4_1, 32, 256, "flat")
    data = encode(encoding, weights(32, 256))
    data[:2] = [0x00, 0x80]
    assert fed(PackedStatistics(encoding), data, 5120, [1]).faults == {"scales_not_positive": 1}


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q4_K])
@pytest.mark.parametrize("columns", [256, 576, 300, 257, 32])
def test_tiles_of_weights_have_no_fault_and_stand_once(kind: Kind, columns: int) -> None:
    """Heavy tails, rows of other sizes, and a row without weights, which is no lost one."""
    values = RNG.standard_t(4, (640, columns)) * np.exp(RNG.normal(0, 1, (640, 1)))
    values[5] = 0
    encoding = Encoding(kind, 640, columns, "flat")
    data = encode(encoding, values.astype(np.float32))
    found = fed(PackedStatistics(encoding), data, len(data) // found_tiles(encoding), [3, 1])
    assert found.faults == {}
    assert not find_repeats({"weights": found.prints})
    assert found.dead_share < 0.01


def found_tiles(encoding: Encoding) -> int:
    return encoding.tile_rows * encoding.tile_columns


def q4_1_tiles(count: int) -> tuple[Encoding, np.ndarray]:
    encoding = Encoding(Kind.Q4_1, 32 * count, 256, "flat")
    return encoding, encode(encoding, weights(32 * count, 256)).reshape(-1, 5120)


def test_a_tile_whose_minimums_are_halved_or_gone_is_counted_and_placed() -> None:
    encoding, chunks = q4_1_tiles(8)
    chunks[2, 512:1024].view("<u2")[:] -= 0x80
    chunks[5, 512:1024] = 0
    found = fed(PackedStatistics(encoding), chunks.reshape(-1), 5120, [3])
    assert found.faults == {"odd_ratio": 1, "signed": 1}
    assert found.first_bad["odd_ratio"] == [64, 0]
    assert found.first_bad["signed"] == [160, 0]


def test_lost_codes_are_found_in_single_tiles() -> None:
    """Rows 16 to 31 of a tile have their codes in its second half; each of its 16 rows has 8 groups."""
    encoding, chunks = q4_1_tiles(8)
    chunks[3, 1024 + 2048 :] = 0x77
    chunks[6, 1024:] &= 0xF0
    found = fed(PackedStatistics(encoding), chunks.reshape(-1), 5120, [1000])
    # Of the tile with every second code zero each group of an even row has one code only.
    assert found.faults == {"one_code": 16 * 8 + 16 * 8, "odd_codes": 1}
    assert found.first_bad["odd_codes"] == [192, 0]
    assert found.first_bad["one_code"] == [96 + 16, 0]


@pytest.mark.parametrize("lost", [0x20, 0x10, 0x08, 0x02])
def test_a_scale_that_lost_a_bit_of_its_exponent_is_told_by_its_minimum(lost: int) -> None:
    """Of 2^-8 the exponent is 119 = 0b1110111, and its bits from the second to the seventh lie in the upper byte."""
    encoding, chunks = q4_1_tiles(2)
    chunks[1, :512].view("<u2")[7] = 0x3B80
    chunks[1, 512:1024].view("<u2")[7] = 0xBD00
    assert fed(PackedStatistics(encoding), chunks.reshape(-1), 5120, [1]).faults == {}
    chunks[1, :512].view("<u2")[7] &= ~np.uint16(lost << 8)
    found = fed(PackedStatistics(encoding), chunks.reshape(-1), 5120, [1])
    assert found.faults == {"too_small": 1}
    assert found.first_bad["too_small"] == [32 + 7, 0]


def test_what_stands_twice_is_said_with_its_partner() -> None:
    a, b = np.arange(1, 101, dtype=np.uint64), np.arange(1001, 1101, dtype=np.uint64)
    b[:25] = a[:25]
    c = np.array([5000, 5001, 5001, 0, 0], np.uint64)
    found = find_repeats({"a": a, "b": b, "c": c, "d": np.arange(9000, 9010, dtype=np.uint64)})
    assert found == {"a": Repeated(0.25, "b"), "b": Repeated(0.25, "a"), "c": Repeated(2 / 3, "c")}


def test_a_run_of_one_value_in_a_plain_matrix_is_measured_and_rows_of_zeros_are_none() -> None:
    bits = fusion(64, 256)
    bits[8:16] = 0  # a quarter of each column of a block
    stored = blocks(bits).view(np.uint8).copy()
    quiet = fed(PlainStatistics("BF16", 64 * 256, line=32), stored, 2, [5000])
    assert quiet.longest_run < 64
    stored[4000:8096] = 0
    found = fed(PlainStatistics("BF16", 64 * 256, line=32), stored, 2, [5000])
    assert 4096 <= found.longest_run <= 4096 + 32
    assert found.run_at == pytest.approx(2000, abs=8)


def test_a_plain_matrix_that_repeats_its_rows_shows_it_and_zeros_do_not() -> None:
    bits = (RNG.normal(0, 1, (400, 64)).astype(np.float32).view(np.uint32) >> 16).astype("<u2")

    def repeated(values: np.ndarray) -> dict[str, Repeated]:
        found = fed(PlainStatistics("BF16", values.size, line=64), values.reshape(-1).view(np.uint8).copy(), 2, [999])
        return find_repeats({"book": found.prints})

    assert repeated(bits) == {}
    bits[100:300] = 0
    assert repeated(bits) == {}
    bits[:] = np.tile(bits[:40], (10, 1))
    assert repeated(bits)["book"].share == 1


def test_tiny_values_and_zeros_are_counted_apart() -> None:
    values = RNG.normal(0, 1, 100_000).astype(np.float32)
    values[:10_000] = 0
    values[10_000:14_500] *= np.float32(2.0**-40)
    found = fed(PlainStatistics("F32", 100_000), values.view(np.uint8), 4, [999])
    assert found.zero_share == pytest.approx(0.1, abs=0.005)
    assert found.tiny_share == pytest.approx(0.05, abs=0.003)
    assert found.magnitude(0.05) == 0
    assert found.magnitude(0.5, zeros=False) > 0.5


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_plain_values_are_measured_however_they_are_cut(dtype: str) -> None:
    values = RNG.normal(0, 1, 5000).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    stored = bits.view(np.uint8) if dtype == "BF16" else values.view(np.uint8)
    exact = bf16(bits) if dtype == "BF16" else values
    found = fed(PlainStatistics(dtype, 5000, 100), stored, 2 if dtype == "BF16" else 4, [7, 130])
    assert found.not_finite == 0
    assert found.negative == np.count_nonzero(exact < 0)
    assert found.magnitude(0.5) == pytest.approx(np.quantile(np.abs(exact), 0.5), rel=0.1)
    assert found.magnitude(0.99) == pytest.approx(np.quantile(np.abs(exact), 0.99), rel=0.1)
    assert len(found.head) == 100


def test_infinities_of_either_sign_and_nan_are_counted() -> None:
    bits = np.full(1000, 0x3F80, "<u2")
    bits[[10, 500, 999]] = [0x7F80, 0xFF80, 0xFFC0]
    found = fed(PlainStatistics("BF16", 1000, 0), bits.view(np.uint8), 2, [64])
    assert found.not_finite == 3
    assert found.first_bad == 10


def fusion(rows: int, columns: int) -> np.ndarray:
    """bf16 bits [rows, columns] whose columns differ in magnitude."""
    values = RNG.normal(0, 1, (rows, columns)) * np.exp(0.3 * RNG.normal(0, 1, columns))
    return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2")


def blocks(matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    return matrix.reshape(rows // 32, 32, columns).swapaxes(1, 2).reshape(-1)


def test_neighbours_under_the_declared_order_are_those_of_the_matrix() -> None:
    matrix = fusion(96, 512)
    found = find_order(blocks(matrix), 96, 512)
    assert found is not None
    assert found.order == Order.DECLARED
    magnitudes = np.abs(bf16(matrix)).astype(np.float64)
    below = np.corrcoef(magnitudes[:-32].reshape(-1), magnitudes[32:].reshape(-1))[0, 1]
    assert found.neighbours.rows_32_on == pytest.approx(below, abs=0.01)


def in_blocks(matrix: np.ndarray, height: int) -> np.ndarray:
    rows, columns = matrix.shape
    return matrix.reshape(rows // height, height, columns).swapaxes(1, 2).reshape(-1)


def in_column_blocks(matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    return matrix.reshape(rows, columns // 32, 32).swapaxes(0, 1).reshape(-1)


def in_tiles(matrix: np.ndarray, across: int) -> np.ndarray:
    rows, columns = matrix.shape
    return matrix.reshape(rows // 32, 32, columns // across, across).swapaxes(1, 2).reshape(-1)


WRONG: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row-major": lambda matrix: matrix.reshape(-1),
    "column-major": lambda matrix: matrix.T.reshape(-1),
    "in blocks of 32 columns": in_column_blocks,
    "in tiles of 32 x 32": lambda matrix: in_tiles(matrix, 32),
    "in tiles of 32 x 256": lambda matrix: in_tiles(matrix, 256),
    **{f"in blocks of {height} rows": partial(in_blocks, height=height) for height in (2, 4, 8, 16, 64, 128)},
}


@pytest.mark.parametrize("name", WRONG)
def test_each_known_wrong_order_is_named(name: str) -> None:
    found = find_order(WRONG[name](fusion(256, 768)), 256, 768)
    assert found is not None
    assert found.order == Order.OTHER
    # Of 256 rows one block of 256 is column-major.
    assert found.named == name


@pytest.mark.parametrize("height", [24, 48, 96])
def test_blocks_of_an_unknown_height_are_no_pass(height: int) -> None:
    found = find_order(in_blocks(fusion(192, 768), height), 192, 768)
    assert found is not None
    assert found.order != Order.DECLARED


ZEROS = [slice(0, 32), slice(32, 96), slice(5, 21), slice(40, 41), slice(0, 180)]


@pytest.mark.parametrize("zero", ZEROS)
def test_rows_of_zeros_do_not_hide_the_declared_order(zero: slice) -> None:
    matrix = fusion(256, 512)
    matrix[zero] = 0
    found = find_order(blocks(matrix), 256, 512)
    assert found is not None
    assert found.order == Order.DECLARED
    assert all(math.isfinite(share) for share in found.shares.values())


@pytest.mark.parametrize("zero", ZEROS[:4])
@pytest.mark.parametrize("name", ["row-major", "column-major", "in blocks of 32 columns", "in blocks of 16 rows"])
def test_rows_of_zeros_do_not_hide_a_wrong_order(name: str, zero: slice) -> None:
    matrix = fusion(256, 768)
    matrix[zero] = 0
    found = find_order(WRONG[name](matrix), 256, 768)
    assert found is not None
    assert (found.order, found.named) == (Order.OTHER, name)


@pytest.mark.parametrize("first", [0, 256, 512])
def test_a_tap_of_zeros_does_not_make_the_declared_order_look_wrong(first: int) -> None:
    matrix = fusion(256, 768)
    matrix[:, first : first + 256] = 0
    found = find_order(blocks(matrix), 256, 768)
    assert found is not None
    assert found.order == Order.DECLARED


def test_rows_that_differ_more_than_columns_are_not_taken_for_another_order() -> None:
    values = RNG.normal(0, 1, (256, 768)) * np.exp(0.4 * RNG.normal(0, 1, (256, 1)))
    found = find_order(blocks((values.astype(np.float32).view(np.uint32) >> 16).astype("<u2")), 256, 768)
    assert found is not None
    assert found.order == Order.UNDETERMINED


def test_one_outlier_does_not_decide_the_order() -> None:
    matrix = fusion(256, 512)
    matrix[3, 3] = 0x44FA  # 2000
    found = find_order(blocks(matrix), 256, 512)
    assert found is not None
    assert found.order == Order.DECLARED


def test_of_zeros_no_order_is_said() -> None:
    assert find_order(np.zeros(96 * 512, "<u2"), 96, 512) is None


@pytest.mark.parametrize("modulus", [13, 101, 251, 1000])
def test_a_made_up_pattern_is_not_taken_for_weights_in_another_order(modulus: int) -> None:
    """As tests of other tools fill matrices: such numbers correlate at any distance, and prove nothing."""
    pattern = (np.arange(256 * 512).reshape(256, 512) % modulus - modulus // 2) / np.float32(1000)
    found = find_order(blocks((pattern.astype(np.float32).view(np.uint32) >> 16).astype("<u2")), 256, 512)
    assert found is not None
    assert found.order != Order.OTHER


def test_values_without_structure_do_not_tell_an_order() -> None:
    noise = (RNG.normal(0, 1, 96 * 512).astype(np.float32).view(np.uint32) >> 16).astype("<u2")
    found = find_order(noise, 96, 512)
    assert found is not None
    assert found.order == Order.UNDETERMINED
    assert find_order(np.full(96 * 512, 0x3F80, "<u2"), 96, 512) is None


@pytest.mark.parametrize("piece", [16, 97, 1 << 12, 1 << 20])
def test_each_byte_is_hashed_and_shown_once_in_whole_units(piece: int, tmp_path: Path) -> None:
    data = RNG.integers(0, 256, 20_000, np.uint8)
    (tmp_path / "file").write_bytes(data.tobytes())
    bounds = [(0, 8, 1), (8, 5008, 50), (5008, 5010, 2), (6000, 6000, 7), (6000, 20_000, 7)]
    shown = np.zeros(20_000, np.int64)

    def span(begin: int, end: int, unit: int) -> Span:
        def take(offset: int, part: np.ndarray) -> None:
            assert offset % unit == 0
            assert len(part) % unit == 0 or begin + offset + len(part) == end
            assert (part == data[begin + offset : begin + offset + len(part)]).all()
            shown[begin + offset : begin + offset + len(part)] += 1

        return Span(begin, end, unit, take)

    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        digest = read_through(descriptor, 20_000, [span(*each) for each in bounds], "file", piece=piece)
        with pytest.raises(CutShort):
            read_through(descriptor, 20_001, [], "file", piece=piece)
    finally:
        os.close(descriptor)
    assert digest == hashlib.sha256(data.tobytes()).hexdigest()
    assert (shown[:5010] == 1).all()
    assert (shown[5010:6000] == 0).all()
    assert (shown[6000:] == 1).all()


def test_a_fault_in_a_measurement_is_not_swallowed_by_its_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))

    def take(offset: int, part: np.ndarray) -> None:
        raise ZeroDivisionError

    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        with pytest.raises(ZeroDivisionError):
            read_through(descriptor, 1000, [Span(0, 1000, 1, take)], "file", piece=100)
    finally:
        os.close(descriptor)


def test_the_sample_of_values_meets_every_row_of_a_block() -> None:
    """Four times as many values as are sampled, of which every fourth is zero."""
    bits = np.full(4 << 18, 0x3F80, "<u2")
    bits[::4] = 0
    found = fed(PlainStatistics("BF16", len(bits)), bits.view(np.uint8), 2, [1 << 19])
    assert found.zero_share == pytest.approx(0.25, abs=0.001)
