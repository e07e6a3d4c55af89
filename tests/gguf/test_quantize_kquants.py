"""Our K-quant kernels against ggml's own routine, bit for bit, on blocks that are chosen to be awkward."""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Type

from draftmill.gguf import quantize_kquants, quantize_tensor
from draftmill.gguf.ggml_library import load_library

F = np.float32
ENCODERS = {
    Type.Q4_K: quantize_kquants.encode_q4_k,
    Type.Q5_K: quantize_kquants.encode_q5_k,
    Type.Q6_K: quantize_kquants.encode_q6_k,
}


def families(superblocks: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """(name, finite float32 of shape (superblocks, 256))."""
    rng = np.random.default_rng(seed)
    shape = (superblocks, 256)

    def normal() -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    def spread(low: float, high: float, block: int) -> np.ndarray:
        gains = np.exp(rng.uniform(low, high, (superblocks, 256 // block))).astype(np.float32)
        return normal() * gains.repeat(block, 1)

    def finite(values: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(values), values, 0).astype(np.float32)

    yield "normal", normal() * F(0.05)
    yield "float16 values", (normal() * F(0.02)).astype(np.float16).astype(np.float32)
    yield "positive", np.abs(normal())
    yield "negative", -np.abs(normal())
    yield "negative and far from zero", -np.abs(normal() * F(0.01)) - F(1)
    yield "positive and far from zero", np.abs(normal() * F(0.01)) + F(1)
    yield "integers, many ties", rng.integers(-3, 4, shape).astype(np.float32)
    yield "multiples of an eighth", np.round(normal() * 4) / F(8)
    yield "two values", rng.choice(np.array([-1, 0.5], np.float32), shape)
    yield "zeros", np.zeros(shape, np.float32)
    yield "negative zeros", -np.zeros(shape, np.float32)
    yield "constant", normal()[:, :1].repeat(256, 1)
    yield "constant in each block", normal()[:, ::16].repeat(16, 1)
    yield "one value in twenty", np.where(rng.random(shape) < 0.05, normal(), F(0))
    yield (
        "one value in a superblock",
        np.where(np.arange(256) == rng.integers(0, 256, (superblocks, 1)), normal(), F(0)),
    )
    yield "blocks of 32 of other sizes", spread(-30, 10, 32)
    yield "blocks of 16 of other sizes", spread(-30, 10, 16)
    yield "heavy tails", spread(-20, 5, 1)
    yield "blocks down to denormals", spread(-95, 0, 32)
    yield "denormals", normal() * F(1e-40)
    yield "about 1e-30", normal() * F(1e-30)
    yield "about 1e-15, where a block counts as empty", normal() * F(1e-15)
    yield "about 1e-7, where scales round to zero", normal() * F(1e-7)
    yield "too large for float16 scales", normal() * F(1e7)
    yield "products overflow", normal() * F(1e15)
    yield "any float32 bits", finite(rng.integers(0, 2**32, shape, np.uint32).view(np.float32))
    yield "any float16 bits", finite(rng.integers(0, 2**16, shape, np.uint16).view(np.float16).astype(np.float32))
    yield "steps at the rounding point", (rng.integers(0, 32, shape) + F(0.5)) / F(15) - F(1)


def differences(kind: Type, values: np.ndarray) -> int:
    """How many bytes of the encoded values differ."""
    flat = np.ascontiguousarray(values, np.float32).ravel()
    return int((ENCODERS[kind](flat) != load_library().quantize(kind, flat)).sum())


@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_every_family_of_blocks_gives_the_bytes_of_ggml(kind):
    different = {name: count for name, values in families(64, seed=1) if (count := differences(kind, values))}
    assert different == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_a_million_small_blocks_give_the_bytes_of_ggml(kind):
    for seed in range(2, 6):
        for name, values in families(1200, seed):
            assert differences(kind, values) == 0, (name, seed)


@pytest.mark.parametrize("superblocks", [1, 7, 8, 9, 63])
@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_counts_that_do_not_fill_the_lanes_give_the_bytes_of_ggml(kind, superblocks):
    values = np.random.default_rng(superblocks).standard_normal((superblocks, 256), np.float32)
    assert differences(kind, values) == 0


@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_the_comparison_sees_a_change_of_one_unit_in_the_last_place(kind):
    values = np.random.default_rng(0).standard_normal(1 << 16, np.float32)
    nudged = np.nextafter(values, F(9))
    assert (ENCODERS[kind](values) != load_library().quantize(kind, nudged)).any()


def test_kernels_compile_where_no_cache_can_be_written():
    program = "import numpy as n; from draftmill.gguf.quantize_lanes import nearest as f; print(f(n.float32(-2.5)))"
    # The only locator that is left serves zipped packages, so there is no folder.
    environment = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "_ZipCacheLocator"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "-2\n"


@pytest.fixture
def fresh_admissions():
    quantize_tensor.admitted_encoder.cache_clear()
    yield
    quantize_tensor.admitted_encoder.cache_clear()


@pytest.mark.usefixtures("fresh_admissions")
@pytest.mark.parametrize("kind", ENCODERS, ids=lambda kind: kind.name)
def test_our_kernels_are_admitted(kind):
    assert quantize_tensor.admitted_encoder(kind, load_library()) is ENCODERS[kind]


@pytest.mark.usefixtures("fresh_admissions")
def test_a_kernel_with_one_wrong_bit_is_not_admitted_and_ggml_encodes(monkeypatch):
    def wrong(values: np.ndarray) -> np.ndarray:
        encoded = ENCODERS[Type.Q4_K](values)
        encoded[-1] ^= 1
        return encoded

    monkeypatch.setattr(quantize_kquants, "encode_q4_k", wrong)
    library = load_library()
    assert quantize_tensor.admitted_encoder(Type.Q4_K, library) is None
    values = np.ones(256, np.float32)
    assert np.array_equal(quantize_tensor.encoder(Type.Q4_K, library)(values), library.quantize(Type.Q4_K, values))
