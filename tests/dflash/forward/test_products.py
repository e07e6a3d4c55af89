"""Products that do not depend on the rows beside, and products with weights that stay packed."""

import sys

import numpy as np
import pytest

from draftmill.dflash.forward import Draft
from draftmill.dflash.forward.blas import HEIGHT, TALL, RowExact
from draftmill.dflash.forward.products import PackedWeights, Weights
from draftmill.dflash.package import Package, write
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.outcome import BadConfiguration
from draftmill.q4nx.encodings import Kind
from tests.support.draft_arrays import Arrays, inputs, small_config, small_tensors


def test_rows_go_through_in_blocks_of_one_height():
    weights, heights = np.random.default_rng(0).standard_normal((5, 8)), []

    def gemm(name, rows):
        heights.append(len(rows))
        return rows @ weights.T

    rows = np.random.default_rng(1).standard_normal((HEIGHT + 3, 8))
    assert np.abs(RowExact(gemm)("w", rows) - rows @ weights.T).max() < 1e-12
    assert heights == [HEIGHT, HEIGHT]


@pytest.mark.parametrize("exact", [True, False])
def test_a_greater_height_is_used_only_where_it_gives_the_same_bits(exact):
    heights = []

    def gemm(name, rows):
        heights.append(len(rows))
        # A product that rounds otherwise when it has many rows, as some BLAS do.
        return rows if exact or len(rows) < TALL else np.nextafter(rows, 2.0)

    rows = np.random.default_rng(2).standard_normal((2 * TALL + 5, 8))
    product = RowExact(gemm)
    assert np.array_equal(product("w", rows), rows)
    # The first block of TALL is tried, and its first rows beside it.
    used = [TALL] * 2 + [HEIGHT] if exact else [HEIGHT] * (2 * TALL // HEIGHT + 1)
    assert heights == [TALL, HEIGHT, *used]
    heights.clear()
    product("w", rows)
    assert heights == used


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("generation", "kind"), [(1, Kind.Q4_1), (1, Kind.Q4_K), (2, Kind.Q4_K)])
def test_packed_weights_give_what_decoded_ones_give(tmp_path, generation, kind, compiled):
    hidden = 192 if generation == 1 else 256  # 192 is padded to whole tiles; the convolutions of 2 need whole ones
    config = synthetic_config(generation, hidden_size=hidden, num_attention_heads=6, num_key_value_heads=3)
    write(tmp_path / "draft", config, synthetic_tensors(config), encoding=kind)
    rng = np.random.default_rng(3)
    features = rng.standard_normal((5, 3 * hidden)).astype(np.float32)
    block = rng.standard_normal((8, hidden)).astype(np.float32)
    whole, packed = (
        Draft(weights(Package.open(tmp_path / "draft"), np.dtype(np.float32), compiled=compiled))
        for weights in (Weights, PackedWeights)
    )
    with whole, packed:
        apart = np.abs(packed.forward(features, block) - whole.forward(features, block)).max()
        assert apart == 0 if compiled else apart < 1e-5
        assert not any(values.ndim == 2 for values in packed.weights._kept.values()), "no matrix is decoded and kept"


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_numba_a_context_is_the_same_however_it_came(monkeypatch, generation, dtype):
    """Beyond the tall blocks, with Bolt's width, where BLAS works in blocks of its own."""
    monkeypatch.setitem(sys.modules, "numba", None)
    config = small_config(generation, hidden_size=320, num_hidden_layers=1)
    tensors = small_tensors(config)
    draft = Draft(Weights(Arrays(config, tensors), np.dtype(dtype)))
    assert not draft.weights.compiled
    features, block = inputs(config, 600, 8)
    steps = draft.cache()
    for at in range(0, 600, 7):
        steps.extend(features[at : at + 7])
    found = steps.forward_cached(block)
    assert np.array_equal(found, draft.forward(features, block))
    monkeypatch.undo()
    compiled = Draft(Weights(Arrays(config, tensors), np.dtype(dtype)))
    assert compiled.weights.compiled
    assert np.abs(compiled.forward(features, block) - found).max() < (1e-3 if dtype == np.float32 else 1e-11)


def test_a_checkpoint_has_nothing_packed(smollm2_dflash):
    with pytest.raises(BadConfiguration, match="not packed"):
        Draft.open(smollm2_dflash, packed=True)
