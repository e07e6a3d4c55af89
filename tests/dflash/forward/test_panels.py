"""The compiled product: right, the same bits whatever comes beside a row or runs the kernel, packed as decoded."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from draftmill.dflash.forward import panels
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import decode, encode


def drawn(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# Whole panels and stretches; a last panel of one output and a stretch of one column; less than the unrolled four.
@pytest.mark.parametrize(("outputs", "columns"), [(64, 512), (33, 257), (5, 3)])
@pytest.mark.parametrize(("dtype", "near"), [(np.float32, 1e-6), (np.float64, 1e-15)])
@pytest.mark.parametrize("count", [1, 8, 41, 520])
def test_a_product_is_the_sum_of_products(outputs, columns, dtype, near, count):
    weights, rows = drawn(outputs, columns, dtype=dtype), drawn(count, columns, seed=1, dtype=dtype)
    expected = rows.astype(np.longdouble) @ weights.T.astype(np.longdouble)
    apart = np.abs(panels.plain(weights).times(rows) - expected)
    assert apart.max() <= near * columns**0.5 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_has_the_same_bits_alone_and_among_others(dtype):
    matrix, rows = panels.plain(drawn(96, 700, dtype=dtype)), drawn(530, 700, seed=1, dtype=dtype)
    together = matrix.times(rows)
    for at in (0, 7, 8, 511, 512, 529):
        assert np.array_equal(matrix.times(rows[at : at + 1])[0], together[at])
    for count in (2, 9, 33, 513):  # one block and a part, and on both sides of what is multiplied side by side
        assert np.array_equal(matrix.times(rows[:count]), together[:count])
    # The control: bits are what is compared, and the last one of a single value shows.
    other = rows[:1].copy()
    other[0, 699] = np.nextafter(other[0, 699] * 1.001, dtype(9))
    assert not np.array_equal(matrix.times(other)[0], together[0])


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q4_K])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [512, 700])  # 700 is padded to whole tiles, and the padding is no weight
def test_packed_tiles_give_the_bits_of_decoded_ones(kind, dtype, columns):
    encoding = Encoding(kind, 64, columns, "grid")
    data = encode(encoding, drawn(64, columns) * np.linspace(0.01, 4, 64, dtype=np.float32)[:, None])
    weights, rows = decode(encoding, data).astype(dtype), drawn(11, columns, seed=1, dtype=dtype)
    packed = panels.packed(encoding, data, np.dtype(dtype))
    assert packed is not None
    assert np.array_equal(packed.times(rows), panels.plain(weights).times(rows))
    # Each weight by itself, with a row that holds a single 1.
    unit = np.eye(columns, dtype=dtype)
    assert np.array_equal(packed.times(unit).T, weights)


def test_an_encoding_that_the_kernel_does_not_know_is_left_to_others():
    encoding = Encoding(Kind.Q8_COLUMN_MAJOR, 32, 256, "grid")
    assert panels.packed(encoding, np.zeros(encoding.nbytes, np.uint8), np.dtype(np.float32)) is None


@pytest.mark.parametrize(("inner", "outputs"), [(128, 520), (520, 128), (3, 2)])
@pytest.mark.parametrize(("dtype", "near"), [(np.float32, 1e-4), (np.float64, 1e-12)])
@pytest.mark.parametrize("turned", [True, False])
def test_stacked_matrices_of_any_strides_are_multiplied_as_numpy_does(inner, outputs, dtype, near, turned):
    rows = drawn(8, 33, inner, dtype=dtype)
    held = drawn(8, outputs, inner + 5, seed=1, dtype=dtype)[:, :, 5:].transpose(0, 2, 1)
    matrices = held if turned else np.ascontiguousarray(held)
    assert np.abs(panels.matmul(rows, matrices) - np.matmul(rows, matrices)).max() < near


def test_products_may_run_at_the_same_time():
    matrix, rows = panels.plain(drawn(320, 512)), [drawn(9, 512, seed=seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(matrix.times, rows))
    assert all(np.array_equal(one, matrix.times(each)) for one, each in zip(found, rows, strict=True))


def test_rows_of_another_width_are_an_error():
    with pytest.raises(ValueError, match=r"rows must be \[n, 512\], not \[2, 511\]"):
        panels.plain(drawn(32, 512)).times(drawn(2, 511))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names processors of this family")
def test_a_processor_with_narrower_registers_gives_the_same_bits():
    """Compiled for AVX2 in another process: other heights and vectors, the same sums."""
    program = (
        "import sys, numpy as np; from draftmill.dflash.forward import kernel, panels\n"
        "rng = np.random.default_rng(0); weights = rng.standard_normal((70, 300)).astype(np.float32)\n"
        "rows = rng.standard_normal((9, 300)).astype(np.float32)\n"
        "sys.stdout.buffer.write(bytes([kernel.HEIGHT]) + panels.plain(weights).times(rows).tobytes())"
    )
    other = os.environ | {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+f16c"}
    said = subprocess.run([sys.executable, "-c", program], env=other, check=True, capture_output=True).stdout
    rng = np.random.default_rng(0)
    weights, rows = rng.standard_normal((70, 300)).astype(np.float32), rng.standard_normal((9, 300)).astype(np.float32)
    assert said[0] == 4
    assert np.array_equal(np.frombuffer(said[1:], np.float32).reshape(9, 70), panels.plain(weights).times(rows))
