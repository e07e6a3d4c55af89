"""The predicted error against ggml's real quantizers, on weights of many kinds."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

from draftmill.gguf.ggml_library import load_library
from draftmill.gguf.product_check_floors import (
    BLOCK_LIMIT,
    TENSOR_LIMIT,
    block_of,
    cosine_floor,
    predicted_square_error,
)
from tests.support.checkpoints import to_bf16

QUANTIZED = [
    Type.Q8_0,
    Type.Q6_K,
    Type.Q5_K,
    Type.Q5_1,
    Type.Q5_0,
    Type.Q4_K,
    Type.Q4_1,
    Type.Q4_0,
    Type.Q3_K,
    Type.Q2_K,
]
ROWS, COLUMNS = 256, 1024


def weights(kind: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    normal = rng.standard_normal((ROWS, COLUMNS))
    values = {
        "normal": normal * 0.05,
        "heavy tails": rng.standard_t(3, (ROWS, COLUMNS)) * 0.02,
        "small": normal * 5e-4,
        "near the end of f16": normal * 5e-6,
        "with an offset": normal * 0.05 + 1,
        "half zeros": np.where(rng.random((ROWS, COLUMNS)) < 0.5, 0, normal) * 0.05,
        "columns of many sizes": normal * 0.05 * np.exp(1.5 * rng.standard_normal((1, COLUMNS))),
        "constant": np.full((ROWS, COLUMNS), 0.3),
        "zero": np.zeros((ROWS, COLUMNS)),
    }
    return values[kind].astype(np.float32)


def measured(values: np.ndarray, kind: Type, scale: float = 1) -> tuple[float, float]:
    """(ratio of the whole, of the worst block) of measured to predicted error."""
    encoded = load_library().quantize(kind, values.ravel()).reshape(ROWS, -1)
    block = block_of(kind, COLUMNS)
    decoded = dequantize(encoded, kind).astype(np.float64) * scale
    error = np.square((decoded - values).reshape(-1, block)).sum(1)
    predicted = predicted_square_error(values.reshape(-1, block), kind)
    worst = np.sqrt(np.where(error == 0, 0, error / predicted).max())
    return float(np.sqrt(error.sum() / predicted.sum())), float(worst)


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize(
    "values",
    [
        "normal",
        "heavy tails",
        "small",
        "near the end of f16",
        "with an offset",
        "half zeros",
        "columns of many sizes",
        "constant",
        "zero",
    ],
)
def test_what_ggml_quantizes_is_within_the_limits(kind, values):
    ratio, worst = measured(weights(values), kind)
    assert ratio <= TENSOR_LIMIT
    assert worst <= BLOCK_LIMIT


@pytest.mark.parametrize("kind", QUANTIZED)
def test_the_prediction_is_the_error_and_not_just_a_bound(kind):
    ratio, _ = measured(weights("normal"), kind)
    assert 0.8 < ratio < 1.05


@pytest.mark.parametrize("kind", [k for k in QUANTIZED if k not in (Type.Q2_K, Type.Q3_K)])
def test_scales_off_by_an_eighth_are_beyond_the_limit(kind):
    ratio, _ = measured(weights("normal"), kind, scale=1.125)
    assert ratio > TENSOR_LIMIT


def test_the_prediction_follows_from_the_step_by_hand():
    # Q8_0, largest magnitude 1.27: step 0.01, variance 0.01^2 / 12 for each of 32 values; the f16 terms add below 2 %.
    block = np.zeros((1, 32), np.float32)
    block[0, 0] = -1.27
    assert predicted_square_error(block, Type.Q8_0) == pytest.approx(32 * 1e-4 / 12, rel=0.02)
    # Q4_K's groups of 32 step by (max - min) / 15: 0.1 here in one group, nothing in the seven of zeros, which share
    # the first one's lower bound: 0.75 in 63 parts.
    block = np.zeros((1, 256), np.float32)
    block[0, :2] = (0.75, -0.75)
    shared = (0.75 / 63) ** 2 / 12 * 256
    assert predicted_square_error(block, Type.Q4_K) == pytest.approx(32 * 1e-2 / 12 + shared, rel=0.01)


def test_float_types_round_by_their_own_precision():
    values = weights("normal")
    rounded = {
        Type.F16: values.astype(np.float16).astype(np.float32),
        Type.BF16: (to_bf16(values).astype(np.uint32) << 16).view(np.float32),
    }
    for kind, near in rounded.items():
        error = np.square((near - values).astype(np.float64)).sum(1)
        ratio = np.sqrt(error.sum() / predicted_square_error(values, kind).sum())
        # Values lie anywhere between two powers of two, the prediction takes the widest spacing.
        assert 0.5 < ratio < 1
    assert predicted_square_error(values, Type.F32).sum() == 0


def test_the_cosine_floor_is_that_of_an_error_at_right_angles_to_the_result():
    # 3-4-5: an error of 0.6 of the length leaves at least a cosine of 0.8.
    assert cosine_floor(0.6) == pytest.approx(0.8)
    assert cosine_floor(0) == 1
    assert cosine_floor(2) == 0
