import numpy as np
import pytest

from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import Padding, decode, decode_rows, decode_tiles, encode, padding
from tests.q4nx import formulae

PACKED = [Kind.Q4_1, Kind.Q4_K, Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT]
UNPACKED = [Kind.BLOCK_BF16, Kind.BF16, Kind.F32]


def any_bytes(encoding: Encoding, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, encoding.nbytes, np.uint8)


def gaussian(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.02, (rows, columns)).astype(np.float32)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Bit for bit, except that any NaN equals any other."""
    numbers = ~np.isnan(left)
    return bool(
        left.shape == right.shape
        and (np.isnan(right) == ~numbers).all()
        and (left[numbers].view(np.uint32) == right[numbers].view(np.uint32)).all()
    )


@pytest.mark.parametrize("kind", PACKED)
def test_any_bytes_decode_to_the_last_bit_as_the_address_formulae_say(kind: Kind) -> None:
    encoding = Encoding(kind, 64, 300, "flat")
    data = any_bytes(encoding)
    assert same_bits(decode(encoding, data), formulae.matrix(kind, data.tobytes(), 64, 300))


def test_the_block_matrix_decodes_as_its_formula_says() -> None:
    encoding = Encoding(Kind.BLOCK_BF16, 64, 70)
    data = any_bytes(encoding)
    assert same_bits(decode(encoding, data), formulae.block_matrix(data.tobytes(), 64, 70))


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("columns", [32, 255, 256, 257, 512, 256 * 17, 256 * 37 + 8])
def test_whole_tiles_and_rows_give_the_same_weights(kind: Kind, columns: int) -> None:
    encoding = Encoding(kind, 96, columns, "grid")
    data = any_bytes(encoding)
    whole = decode(encoding, data)
    rows = np.array([95, 0, 31, 32, 31, 77])
    assert same_bits(decode_rows(encoding, data, rows), whole[rows])
    across = encoding.tile_columns
    tiles = decode_tiles(encoding, data, 1, 3 * across)
    stored = np.concatenate([decode_tiles(encoding, data, 0, 1), tiles]).reshape(3, across, 32, 256)
    stored = stored.swapaxes(1, 2).reshape(96, -1)
    assert same_bits(np.ascontiguousarray(stored[:, :columns]), whole)


@pytest.mark.parametrize("kind", UNPACKED)
def test_rows_of_unpacked_matrices_are_those_of_the_whole(kind: Kind) -> None:
    encoding = Encoding(kind, 64, 33)
    data = encode(encoding, gaussian(64, 33))
    rows = [63, 0, 40]
    assert same_bits(decode_rows(encoding, data, np.array(rows)), decode(encoding, data)[rows])


def test_a_tile_of_the_block_matrix_is_a_band_of_rows() -> None:
    encoding = Encoding(Kind.BLOCK_BF16, 96, 40)
    data = encode(encoding, gaussian(96, 40))
    assert same_bits(decode_tiles(encoding, data, 1, 3).reshape(64, 40), decode(encoding, data)[32:])


def test_a_row_of_a_large_codebook_is_read_without_the_rest() -> None:
    # 248320 x 256 as Q4_K is 36.75 MB; only the row's own chunk is real here, the rest is a hole of the address space.
    encoding = Encoding(Kind.Q4_K, 248320, 256, "flat")
    data = np.zeros(encoding.nbytes, np.uint8)
    row = 200_001
    chunk = np.random.default_rng(3).integers(0, 64, 4736, np.uint8)
    data[row // 32 * 4736 :][:4736] = chunk
    expected = [formulae.q4_k(chunk.tobytes(), row % 32, c) for c in range(256)]
    assert same_bits(decode_rows(encoding, data, np.array([row]))[0], np.array(expected, np.float32))


@pytest.mark.parametrize("kind", PACKED)
def test_data_may_lie_at_any_address(kind: Kind) -> None:
    encoding = Encoding(kind, 32, 512, "flat")
    data = any_bytes(encoding)
    shifted = np.concatenate([np.zeros(1, np.uint8), data])[1:]
    assert same_bits(decode(encoding, shifted), decode(encoding, data))


@pytest.mark.parametrize("kind", [*PACKED, *UNPACKED])
def test_the_callers_buffer_is_filled(kind: Kind) -> None:
    encoding = Encoding(kind, 64, 300, "flat")
    data = encode(encoding, gaussian(64, 300))
    out = np.empty((64, 300), np.float32)
    assert decode(encoding, data, out) is out
    assert same_bits(out, decode(encoding, data))


def test_a_buffer_or_data_of_another_size_is_an_error_of_the_caller() -> None:
    encoding = Encoding(Kind.Q4_1, 32, 256, "flat")
    data = any_bytes(encoding)
    with pytest.raises(ValueError, match="data must be"):
        decode(encoding, data[:-1])
    with pytest.raises(ValueError, match="out must be"):
        decode(encoding, data, np.empty((32, 256), np.float64))
    with pytest.raises(ValueError, match="rows must lie"):
        decode_rows(encoding, data, np.array([32]))
    with pytest.raises(ValueError, match="not within"):
        decode_tiles(encoding, data, 0, 2)


def test_q8_without_a_named_order_is_not_decoded() -> None:
    encoding = Encoding(Kind.Q8, 32, 256, "flat")
    with pytest.raises(ValueError, match="name the order"):
        decode(encoding, np.zeros(encoding.nbytes, np.uint8))


@pytest.mark.parametrize(
    ("kind", "most"),
    [(Kind.Q4_1, 0.075), (Kind.Q4_K, 0.075), (Kind.Q8_COLUMN_MAJOR, 0.006), (Kind.Q8_HALF_SPLIT, 0.006)],
)
@pytest.mark.parametrize("columns", [512, 600])
def test_encoding_loses_no_more_than_its_width_allows(kind: Kind, most: float, columns: int) -> None:
    # 4-bit codes over a normal group of 32 lose about 8 % of the root mean square with the plain range (16 steps over
    # some 4.2 standard deviations: 4.2 / 15 / sqrt(12) = 0.081); 8-bit ones 2.1 x 2 / 254 / sqrt(12) = 0.005.
    encoding = Encoding(kind, 64, columns, "flat")
    values = gaussian(64, columns)
    back = decode(encoding, encode(encoding, values))
    assert np.sqrt(np.mean((back - values) ** 2) / np.mean(values**2)) < most


@pytest.mark.parametrize("kind", [Kind.BLOCK_BF16, Kind.BF16])
def test_bfloat16_is_rounded_to_nearest_even(kind: Kind) -> None:
    encoding = Encoding(kind, 32, 2)
    values = np.zeros((32, 2), np.float32)
    # bfloat16 steps are 2^-7 at 1: halfway goes to the even neighbour, a little more goes up.
    values[3] = 1 + 2.0**-8, 1 + 3 * 2.0**-8
    assert decode(encoding, encode(encoding, values))[3].tolist() == [1, 1 + 2.0**-6]


def test_what_float32_holds_comes_back_unchanged() -> None:
    encoding = Encoding(Kind.F32, 5, 7)
    values = gaussian(5, 7)
    assert same_bits(decode(encoding, encode(encoding, values)), values)


@pytest.mark.parametrize("kind", PACKED)
def test_zero_stays_zero_and_gets_a_positive_scale(kind: Kind) -> None:
    from draftmill.q4nx.encodings import CODECS

    encoding = Encoding(kind, 32, 256, "flat")
    data = encode(encoding, np.zeros((32, 256), np.float32))
    assert not decode(encoding, data).any()
    scales, _ = CODECS[kind].groups(data)
    assert (scales > 0).all()


@pytest.mark.parametrize("kind", PACKED)
def test_padding_of_whole_groups_is_exactly_zero_and_reported(kind: Kind) -> None:
    encoding = Encoding(kind, 64, 320, "flat")
    data = encode(encoding, gaussian(64, 320) + 1)
    assert encoding.padded_columns == 192
    assert padding(encoding, data) == Padding(192, 0.0)


def test_padding_that_holds_something_is_reported() -> None:
    encoding = Encoding(Kind.Q4_1, 64, 320, "flat")
    wide = np.ones((64, 512), np.float32)
    data = encode(Encoding(Kind.Q4_1, 64, 512, "flat"), wide)
    assert padding(encoding, data) == Padding(192, 1.0)


@pytest.mark.parametrize("column", [320, 511])
def test_the_first_and_the_last_column_of_the_padding_count(column: int) -> None:
    wide = np.zeros((64, 512), np.float32)
    wide[40, column] = 127
    data = encode(Encoding(Kind.Q8_HALF_SPLIT, 64, 512, "flat"), wide)
    assert padding(Encoding(Kind.Q8_HALF_SPLIT, 64, 320, "flat"), data) == Padding(192, 127.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**61])
@pytest.mark.parametrize("kind", [*PACKED, *UNPACKED])
def test_values_that_are_no_weights_are_not_encoded(kind: Kind, value: float) -> None:
    values = gaussian(32, 256)
    values[7, 9] = value
    with pytest.raises(Refused) as refused:
        encode(Encoding(kind, 32, 256, "flat"), values)
    assert refused.value.code == "q4nx.not_encodable"
    assert refused.value.refusals[0].measured == 1
