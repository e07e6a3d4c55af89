"""The quantising search, held against an independent plain range and against values that are on the grid already."""

import numpy as np
import pytest

from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.fitting import FLAT_SCALE, lines_below_zero, super_blocks
from draftmill.q4nx.matrix import decode, encode


def groups(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 32)


def bf16(value: np.ndarray) -> np.ndarray:
    """Nearest bfloat16 by comparing both neighbours in float64, ties to the even one."""
    below = (value.astype(np.float32).view(np.uint32) >> 16).astype(np.uint32)
    low = (below << 16).view(np.float32)
    high = ((below + 1) << 16).view(np.float32)
    to_low, to_high = abs(value - low.astype(np.float64)), abs(value - high.astype(np.float64))
    return np.where((to_high < to_low) | ((to_high == to_low) & (below % 2 == 1)), high, low)


def plain_range_error(values: np.ndarray) -> np.ndarray:
    """Squared error per group with minimum and range alone, stored as bfloat16, codes to nearest."""
    x = groups(values).astype(np.float64)
    minimum = bf16(x.min(1).astype(np.float32))[:, None].astype(np.float64)
    scale = bf16(((x.max(1) - x.min(1)) / 15).astype(np.float32))[:, None].astype(np.float64)
    codes = np.clip(np.round((x - minimum) / scale), 0, 15)
    return ((codes * scale + minimum - x) ** 2).sum(1)


def test_q4_1_is_never_worse_than_the_plain_range_and_on_the_whole_better() -> None:
    values = np.random.default_rng(0).standard_t(4, (128, 512)).astype(np.float32)
    encoding = Encoding(Kind.Q4_1, 128, 512, "flat")
    error = (groups(decode(encoding, encode(encoding, values))).astype(np.float64) - groups(values)) ** 2
    plain = plain_range_error(values)
    assert (error.sum(1) <= plain * (1 + 1e-4)).all()
    assert error.sum() < 0.9 * plain.sum()


def on_the_grid(kind: Kind) -> np.ndarray:
    """Weights [32, 256] that the encoding holds exactly and whose codes span their range in each group."""
    random = np.random.default_rng(1)
    if kind in (Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT):
        codes = random.integers(-127, 128, (32, 8, 32))
        codes[..., 5] = -127
        scales, minimums = random.integers(128, 256, (32, 8, 1)) * 2.0**-15, 0.0
    else:
        codes = random.integers(0, 16, (32, 8, 32))
        codes[..., 3], codes[..., 8] = 0, 15
        scales = random.integers(128, 256, (32, 8, 1)) * 2.0**-14
        minimums = -random.integers(128, 256, (32, 8, 1)) * 2.0**-11
    return (codes * scales + minimums).reshape(32, 256).astype(np.float32)


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT])
def test_what_the_encoding_holds_comes_back_to_the_last_bit(kind: Kind) -> None:
    encoding = Encoding(kind, 32, 256, "flat")
    values = on_the_grid(kind)
    assert (decode(encoding, encode(encoding, values)) == values).all()


def test_q4_k_comes_near_what_it_could_hold() -> None:
    # u8 factors of a common bfloat16: 1 part in 510 of the largest group scale and minimum each, so 15 x scale / 510 +
    # minimum / 510 at the outside, here at most 15 x 2^-6 / 510 + 2^-3 / 510 = 0.0007; half a code step is 2^-7.
    encoding = Encoding(Kind.Q4_K, 32, 256, "flat")
    values = on_the_grid(Kind.Q4_K)
    assert abs(decode(encoding, encode(encoding, values)) - values).max() < 2.0**-7
    assert np.sqrt(np.mean((decode(encoding, encode(encoding, values)) - values) ** 2)) < 0.0007


def test_q4_k_is_as_good_as_q4_1_on_normal_weights() -> None:
    values = np.random.default_rng(0).normal(0, 1, (64, 512)).astype(np.float32)
    errors = {}
    for kind in (Kind.Q4_1, Kind.Q4_K):
        encoding = Encoding(kind, 64, 512, "flat")
        errors[kind] = float(np.mean((decode(encoding, encode(encoding, values)) - values) ** 2))
    assert errors[Kind.Q4_K] < 1.05 * errors[Kind.Q4_1]


def test_q4_k_row_factors_reach_every_group_without_clipping() -> None:
    x = np.random.default_rng(0).normal(0, 1, (1, 32, 8, 32)).astype(np.float32)
    scales, minimums = lines_below_zero(x)
    s, m = ((bits.astype(np.uint32) << 16).view(np.float32) for bits in super_blocks(x)[:2])
    assert (s * 255 >= scales.max(-1)).all()
    assert (m * 255 <= minimums.min(-1)).all()


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q4_K, Kind.Q8_COLUMN_MAJOR])
@pytest.mark.parametrize(
    "values",
    [
        np.full((32, 256), 0.5, np.float32),
        np.full((32, 256), -0.5, np.float32),
        np.where(np.arange(256) == 17, np.float32(3), np.float32(0)) + np.zeros((32, 1), np.float32),
        np.full((32, 256), 1e-38, np.float32),
        np.linspace(-1, 1, 8192, dtype=np.float32).reshape(32, 256) * np.float32(2.0**60),
        np.linspace(1, 2, 8192, dtype=np.float32).reshape(32, 256),
        np.linspace(-2, -1, 8192, dtype=np.float32).reshape(32, 256),
    ],
    ids=["constant", "negative", "one outlier", "tiny", "huge", "all above zero", "all below zero"],
)
def test_extreme_groups_decode_to_finite_values_near_themselves(kind: Kind, values: np.ndarray) -> None:
    encoding = Encoding(kind, 32, 256, "flat")
    back = decode(encoding, encode(encoding, values))
    reach = max(abs(values).max(), FLAT_SCALE)
    # Q4_K cannot lift a group above zero, so 1/15 of the reach is one step; half a step and the rounding of factors.
    assert np.isfinite(back).all()
    assert abs(back.astype(np.float64) - values).max() <= reach * (1 / 30 + 1 / 100)
