import numpy as np
import pytest

from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Encoding, Kind, classify, foreign_content, with_q8_order
from draftmill.q4nx.header import Entry


def tensor(dtype: str, shape: tuple[int, ...], nbytes: int | None = None) -> Entry:
    width = {"I8": 1, "U8": 1, "BF16": 2, "F16": 2, "F32": 4}.get(dtype, 0)
    size = int(np.prod(shape)) * width if nbytes is None else nbytes
    return Entry("model.w", dtype, shape, 100, 100 + size)


def refusal(entry: Entry, n: int, k: int) -> str:
    with pytest.raises(Refused) as refused:
        classify(entry, n, k)
    (finding,) = refused.value.refusals
    assert finding.where == "model.w"
    return finding.code


# Sizes of the format page, section 6.2 and 7.2: 4096 x 2560 is 128 x 10 tiles, 1024 x 5120 is 32 x 20.
@pytest.mark.parametrize(
    ("entry", "n", "k", "kind", "form"),
    [
        (tensor("I8", (1280, 5120)), 4096, 2560, Kind.Q4_1, "flat"),
        (tensor("I8", (128, 10, 5120)), 4096, 2560, Kind.Q4_1, "grid"),
        (tensor("I8", (640, 4736)), 1024, 5120, Kind.Q4_K, "flat"),
        (tensor("I8", (32, 20, 4736)), 1024, 5120, Kind.Q4_K, "grid"),
        (tensor("I8", (640, 8704)), 1024, 5120, Kind.Q8, "flat"),
        (tensor("I8", (32, 20, 8704)), 1024, 5120, Kind.Q8, "grid"),
        (tensor("BF16", (80, 12800, 32)), 2560, 12800, Kind.BLOCK_BF16, ""),
        (tensor("BF16", (2560, 12800)), 2560, 12800, Kind.BF16, ""),
        (tensor("F32", (5, 7)), 5, 7, Kind.F32, ""),
        (tensor("I8", (7760, 4736)), 248320, 256, Kind.Q4_K, "flat"),
    ],
)
def test_each_documented_form_is_told(entry: Entry, n: int, k: int, kind: Kind, form: str) -> None:
    encoding = classify(entry, n, k)
    assert (encoding.kind, encoding.rows, encoding.columns, encoding.form) == (kind, n, k, form)
    assert (encoding.shape, encoding.nbytes, encoding.dtype) == (entry.shape, entry.nbytes, entry.dtype)
    assert encoding.padded_columns == 0


@pytest.mark.parametrize(("columns", "tiles", "padding"), [(1, 1, 255), (255, 1, 1), (257, 2, 255), (2050, 9, 254)])
def test_width_is_padded_to_whole_tiles(columns: int, tiles: int, padding: int) -> None:
    encoding = classify(tensor("I8", (2 * tiles, 4736)), 64, columns)
    assert (encoding.tile_columns, encoding.padded_columns, encoding.stored_columns) == (tiles, padding, tiles * 256)


LEGACY = {
    "subtractive": (tensor("Q4NX", (64, 512), 4 * 5120), 64, 512, "legacy_subtractive"),
    "Q8 in 128 columns, flat": (tensor("I8", (8, 5120)), 64, 512, "legacy_q8_in_q4_frame"),
    "Q8 in 128 columns, grid": (tensor("I8", (2, 4, 5120)), 64, 512, "legacy_q8_in_q4_frame"),
    "Q8 in 128 columns, odd count": (tensor("I8", (6, 5120)), 64, 384, "legacy_q8_in_q4_frame"),
    "narrow tiles": (tensor("I8", (8, 2560)), 64, 512, "legacy_narrow_tiles"),
    "narrow tiles, grid": (tensor("I8", (2, 4, 2560)), 64, 512, "legacy_narrow_tiles"),
    "small chunks": (tensor("I8", (16, 1280)), 64, 512, "legacy_small_chunks"),
    "Q8 with a zero plane": (tensor("I8", (2, 2, 9216)), 64, 512, "legacy_q8_zero_plane"),
}


@pytest.mark.parametrize("name", LEGACY)
def test_legacy_forms_are_named(name: str) -> None:
    entry, n, k, code = LEGACY[name]
    assert refusal(entry, n, k) == f"q4nx.{code}"


OTHER = {
    "a tile short": (tensor("I8", (3, 5120)), 64, 512, "tile_count"),
    "a tile more": (tensor("I8", (5, 5120)), 64, 512, "tile_count"),
    "Q4_K as many tiles as legacy Q8": (tensor("I8", (8, 4736)), 64, 512, "tile_count"),
    "a grid on its side": (tensor("I8", (4, 2, 4736)), 64, 1024, "tile_count"),
    "chunk width unknown": (tensor("I8", (4, 5121)), 64, 512, "chunk_unknown"),
    "four dimensions": (tensor("I8", (1, 2, 2, 5120)), 64, 512, "rank_unexpected"),
    "one dimension": (tensor("I8", (5120,)), 32, 256, "rank_unexpected"),
    "blocks of four dimensions": (tensor("BF16", (1, 2, 512, 32)), 64, 512, "rank_unexpected"),
    "a plain table": (tensor("I8", (64, 512)), 64, 512, "plain_int8"),
    "rows not in tiles": (tensor("I8", (4, 5120)), 40, 512, "rows_not_whole_tiles"),
    "block rows not in blocks": (tensor("BF16", (2, 512, 32)), 40, 512, "rows_not_whole_tiles"),
    "half floats": (tensor("F16", (64, 512)), 64, 512, "dtype_unexpected"),
    "unsigned bytes": (tensor("U8", (4, 5120)), 64, 512, "dtype_unexpected"),
    "a label of its own": (tensor("Q5NX", (4, 5120), 20480), 64, 512, "dtype_unexpected"),
    "transposed": (tensor("BF16", (512, 64)), 64, 512, "shape_unexpected"),
    "block matrix of another width": (tensor("BF16", (2, 511, 32)), 64, 512, "shape_unexpected"),
    "blocks of another height": (tensor("BF16", (4, 512, 16)), 64, 512, "shape_unexpected"),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_is_no_documented_form_is_refused(name: str) -> None:
    entry, n, k, code = OTHER[name]
    assert refusal(entry, n, k) == f"q4nx.{code}"


@pytest.mark.parametrize("name", OTHER)
def test_each_refusal_says_what_to_do(name: str) -> None:
    entry, n, k, _ = OTHER[name]
    with pytest.raises(Refused) as refused:
        classify(entry, n, k)
    (found,) = refused.value.refusals
    assert any(verb in found.sentence.lower() for verb in ("download the package", "convert the package", "use the"))
    if len(entry.shape) == 4:
        assert "two or three extents and this one has 4" in found.sentence


def test_the_order_of_q8_codes_is_named_by_the_caller() -> None:
    encoding = classify(tensor("I8", (4, 8704)), 64, 512)
    assert with_q8_order(encoding, Kind.Q8_HALF_SPLIT).kind == Kind.Q8_HALF_SPLIT
    assert with_q8_order(encoding, Kind.Q8_COLUMN_MAJOR).nbytes == encoding.nbytes
    other = Encoding(Kind.Q4_K, 32, 256, "flat")
    assert with_q8_order(other, Kind.Q8_HALF_SPLIT) == other
    with pytest.raises(ValueError, match="no order"):
        with_q8_order(encoding, Kind.Q4_1)


def q4_1_bytes(tiles: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 255, tiles * 5120, np.uint8)


def test_signed_codes_are_told_by_minimums_that_are_all_zero() -> None:
    encoding = Encoding(Kind.Q4_1, 64, 512, "flat")
    data = q4_1_bytes(4)
    minimums = data.reshape(4, 5120)[:, 512:1024]
    assert foreign_content(encoding, data, "w") is None
    minimums[...] = 0
    # Negative zero is zero.
    minimums[2, 7] = 0x80
    found = foreign_content(encoding, data, "w")
    assert found is not None
    assert (found.code, found.where) == ("q4nx.legacy_signed", "w")
    minimums[3, 510] = 1
    assert foreign_content(encoding, data, "w") is None


def test_legacy_q8_of_a_narrow_matrix_is_told_by_its_content() -> None:
    # At k <= 128 tile counts agree: ceil(128 / 256) = ceil(128 / 128) = 1.
    encoding = Encoding(Kind.Q4_1, 64, 128, "flat")
    data = q4_1_bytes(2)
    chunks = data.reshape(2, 5120)
    chunks[:, 256:512] = chunks[:, :256]
    assert foreign_content(encoding, data, "w") is None
    chunks[:, 4608:] = 0
    found = foreign_content(encoding, data, "w")
    assert found is not None
    assert found.code == "q4nx.legacy_q8_in_q4_frame"
    assert foreign_content(Encoding(Kind.Q4_1, 64, 256, "flat"), data, "w") is None
    chunks[1, 0] ^= 1
    assert foreign_content(encoding, data, "w") is None


def test_only_q4_1_shares_its_frame() -> None:
    encoding = Encoding(Kind.Q4_K, 32, 256, "flat")
    assert foreign_content(encoding, np.zeros(4736, np.uint8), "w") is None
