"""The forward against the definition written out, and the properties that the definition has."""

import numpy as np
import pytest

from draftmill.dflash.forward import Draft, WindowRule
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.rope import Rope
from draftmill.outcome import Refused
from tests.support.dflash_by_hand import forward as by_hand
from tests.support.draft_arrays import Arrays, inputs, small_config, small_draft, small_tensors

SLIDING = ("sliding_attention", "full_attention", "sliding_attention")


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_types": SLIDING, "sliding_window": 4},
        {"layer_types": SLIDING, "sliding_window": 4, "causal": True},
        {"input_embedding_scale": 5.657},
    ],
    ids=["full", "sliding", "causal", "embedding scale"],
)
def test_it_computes_what_the_definition_says(generation, changes):
    draft = small_draft(generation, **changes)
    features, block = inputs(draft.config, 5, 4)
    expected = by_hand(draft.config, draft.weights.source.tensors, features, block)
    assert np.abs(draft.forward(features, block) - expected).max() < 1e-12


def test_one_block_row_alone_attends_to_its_context_and_itself():
    """Worked out by hand: one layer, one head of 2, identity weights, MLP switched off."""
    config = small_config(
        hidden_size=2, intermediate_size=2, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
        head_dim=2, target_layer_ids=(1,), rms_norm_eps=0.0, rope=Rope(1.0),
    )  # fmt: skip
    eye, ones = np.eye(2), np.ones(2)
    tensors = {name: ones if values.ndim == 1 else eye for name, values in small_tensors(config).items()}
    tensors["layers.0.mlp.down_proj.weight"] = np.zeros((2, 2))
    draft = Draft(Weights(Arrays(config, tensors), np.dtype(np.float64)))
    # Context row (3, 4) -> RMS sqrt(12.5) -> (0.8485, 1.1314), again its own norm. Block row (1, 0) -> (sqrt 2, 0).
    # One turn a position apart at theta 1 is 1 radian: scores are q . k / sqrt 2 of the turned rows.
    c, b = np.array([3.0, 4.0]) / np.sqrt(12.5), np.array([np.sqrt(2.0), 0.0])
    turn = np.array([[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]])
    scores = np.array([(turn @ b) @ c, b @ b]) / np.sqrt(2)
    share = np.exp(scores) / np.exp(scores).sum()
    row = np.array([1.0, 0.0]) + share[0] * c + share[1] * b
    expected = row / np.sqrt(np.mean(row**2))
    found = draft.forward(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]))
    assert np.abs(found[0] - expected).max() < 1e-15


@pytest.mark.parametrize("generation", [1, 2])
def test_only_relative_positions_matter(generation):
    draft = small_draft(generation, layer_types=SLIDING, sliding_window=5)
    features, block = inputs(draft.config, 9, 6)
    apart = np.abs(draft.forward(features, block) - draft.forward(features, block, start=12345)).max()
    assert apart < 1e-9
    # The negative control: where the context is, relative to the block, does matter.
    assert np.abs(draft.forward(features, block) - draft.forward(features[::-1], block)).max() > 1e-3


@pytest.mark.parametrize("generation", [1, 2])
def test_a_later_block_row_changes_an_earlier_one(generation):
    draft = small_draft(generation)
    features, block = inputs(draft.config, 3, 4)
    other = block.copy()
    other[3] += 1
    assert np.abs(draft.forward(features, block)[0] - draft.forward(features, other)[0]).max() > 1e-3


def test_a_causal_layer_hides_later_block_rows():
    draft = small_draft(causal=True, layer_types=("sliding_attention",) * 3, sliding_window=100)
    features, block = inputs(draft.config, 3, 4)
    other = block.copy()
    other[3] += 1
    same, parted = draft.forward(features, block), draft.forward(features, other)
    assert np.array_equal(same[:3], parted[:3])
    assert not np.array_equal(same[3], parted[3])


def test_the_scale_of_the_context_does_not_matter():
    draft = small_draft()
    features, block = inputs(draft.config, 4, 3)
    assert np.abs(draft.forward(features, block) - draft.forward(features * 1000, block)).max() < 1e-6
    assert np.abs(draft.forward(features, block) - draft.forward(features, block * 1000)).max() > 1e-3


def test_a_window_of_one_is_each_row_on_its_own():
    draft = small_draft(layer_types=("sliding_attention",) * 3, sliding_window=1)
    features, block = inputs(draft.config, 4, 5)
    together = draft.forward(features, block)
    for row in range(5):
        # At its own place behind the context, which it does not see either.
        alone = draft.forward(features, block[row : row + 1], start=row)
        assert np.abs(together[row] - alone[0]).max() < 1e-12


@pytest.mark.parametrize(
    ("rule", "sees"),
    [
        (WindowRule.EXCLUSIVE, range(3, 8)),
        (WindowRule.INCLUSIVE, range(2, 9)),
        (WindowRule.LEFT, range(3, 10)),
        (WindowRule.IGNORED, range(10)),
    ],
)
def test_each_window_rule_sees_what_it_says(rule, sees):
    """Of keys 0..9 with a window of 3, a query at position 5."""
    from draftmill.dflash.forward.attention import hidden_keys

    hidden = hidden_keys(np.array([5]), np.arange(10), 3, rule, causal=False)
    assert np.flatnonzero(~hidden[0]).tolist() == list(sees)
    causal = hidden_keys(np.array([5]), np.arange(10), 3, rule, causal=True)
    assert np.flatnonzero(~causal[0]).tolist() == [key for key in sees if key <= 5]
    assert not hidden_keys(np.array([5]), np.arange(10), None, rule, causal=True).any()


def test_a_query_head_reads_the_key_value_head_of_its_group():
    """Key-value head 1 zeroed at the values: only query heads 4..7 of 8 are silent."""
    draft = small_draft(num_hidden_layers=1)
    features, block = inputs(draft.config, 3, 2)
    values = draft.weights.source.tensors["layers.0.self_attn.v_proj.weight"]
    values[8:] = 0
    _, trace = draft.forward(features, block, trace=True)
    heads = trace["layers.0.attention.mixed"].reshape(2, 8, 8)
    assert (np.abs(heads[:, :4]).max(axis=(0, 2)) > 0).all()
    assert (heads[:, 4:] == 0).all()


def test_identity_kernels_are_generation_1():
    second = small_draft(2)
    tensors = dict(second.weights.source.tensors)
    for name, values in tensors.items():
        if "base_kernel" in name:
            tensors[name] = np.zeros_like(values)
            tensors[name][:, 0] = 1
        if "kernel_projection" in name:
            tensors[name] = np.zeros_like(values)
    draft = Draft(Weights(Arrays(second.config, tensors), np.dtype(np.float64)))
    first = Draft(Weights(Arrays(small_config(1), tensors), np.dtype(np.float64)))
    features, block = inputs(draft.config, 4, 5)
    assert np.abs(draft.forward(features, block) - first.forward(features, block)).max() < 1e-13
    assert np.abs(second.forward(features, block) - first.forward(features, block)).max() > 1e-3


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("steps", [(6, 5), (1,) * 11, (10, 1), (3, 0, 8)])
def test_a_cache_grown_in_steps_gives_the_single_pass_exactly(generation, dtype, steps):
    draft = small_draft(generation, dtype=dtype, layer_types=SLIDING, sliding_window=6)
    features, block = inputs(draft.config, 11, 8)
    cache, done = draft.cache(), 0
    for step in steps:
        if step:
            cache.extend(features[done : done + step])
            cache.forward_cached(block[:3])  # a pass between leaves nothing behind
        done += step
    assert np.array_equal(cache.forward_cached(block), draft.forward(features, block))


def test_a_long_context_is_the_same_however_it_came(monkeypatch):
    """Beyond the tall blocks of products, with Bolt's width, where BLAS works in blocks of its own."""
    draft = small_draft(dtype=np.float32, hidden_size=320, num_hidden_layers=1)
    features, block = inputs(draft.config, 600, 8)
    steps = draft.cache()
    for at in range(0, 600, 7):
        steps.extend(features[at : at + 7])
    assert np.array_equal(steps.forward_cached(block), draft.forward(features, block))


def test_a_trace_holds_every_step_and_the_same_rows_however_the_context_came():
    draft = small_draft(2, dtype=np.float32)
    features, block = inputs(draft.config, 7, 4)
    rows, trace = draft.forward(features, block, trace=True)
    cache = draft.cache(trace=True)
    cache.extend(features[:2])
    cache.extend(features[2:])
    assert np.array_equal(cache.forward_cached(block), rows)
    assert cache.trace is not None and set(cache.trace) == set(trace)
    assert all(np.array_equal(cache.trace[name], trace[name]) for name in trace)
    assert np.array_equal(trace["output"], rows)
    # 2 of the context, and of each layer 2 context, 5 + 2 attention and mlp rows of each generation, convolved, output.
    assert len(trace) == 2 + 3 * (2 + 6 + 3 + 2 + 1) + 1
    # The residual adds up: a layer's output is its input and what its two sublayers give.
    before = block.astype(np.float32)
    for layer in range(3):
        before = before + trace[f"layers.{layer}.attention.out"] + trace[f"layers.{layer}.mlp.out"]
        assert np.abs(trace[f"layers.{layer}.output"] - before).max() < 1e-4


def test_every_projection_can_run_elsewhere():
    host = small_draft(2)
    asked = []

    def device(name: str, rows: np.ndarray) -> np.ndarray:
        asked.append(name)
        return rows @ host.weights.source.tensors[name].T

    draft = Draft(host.weights, gemm=device)
    features, block = inputs(draft.config, 4, 3)
    assert np.abs(draft.forward(features, block) - host.forward(features, block)).max() < 1e-12
    matrices = {name for name, values in host.weights.source.tensors.items() if values.ndim == 2}
    codebooks = {name for name in matrices if name.endswith("_codebook")}
    assert set(asked) == matrices - codebooks - {"candidate_selector.hidden_projection.weight"}


def test_a_wrong_device_shows(monkeypatch):
    host = small_draft()

    def device(name: str, rows: np.ndarray) -> np.ndarray:
        out = rows @ host.weights.source.tensors[name].T
        return -out if name == "layers.1.mlp.up_proj.weight" else out

    features, block = inputs(host.config, 4, 3)
    assert (
        np.abs(Draft(host.weights, gemm=device).forward(features, block) - host.forward(features, block)).max() > 0.01
    )


def test_float32_is_close_to_float64():
    features, block = inputs(small_config(2), 40, 8)
    apart = np.abs(
        small_draft(2, dtype=np.float32).forward(features, block) - small_draft(2).forward(features, block)
    ).max()
    assert 0 < apart < 1e-4


@pytest.mark.parametrize(
    ("features", "block", "says"),
    [
        ((4, 95), (3, 32), r"features must be \[n, 96\] .* not \[4, 95\]"),
        ((4, 96), (3, 31), r"block must be \[n, 32\] .* not \[3, 31\]"),
        ((4, 96), (0, 32), r"block must be \[n, 32\] with n at least 1"),
        ((96,), (3, 32), r"features must be \[n, 96\]"),
    ],
)
def test_other_shapes_are_an_error(features, block, says):
    with pytest.raises(ValueError, match=says):
        small_draft().forward(np.zeros(features), np.zeros(block))


def test_numbers_that_are_none_are_an_error_and_so_is_a_pass_that_ends_in_them():
    draft = small_draft(dtype=np.float32)
    features, block = inputs(draft.config, 4, 3)
    features[2, 5] = np.nan
    with pytest.raises(ValueError, match="features has 1 values"):
        draft.forward(features, block)
    features[2, 5] = 1e38
    with pytest.raises(Refused, match="infinities"), np.errstate(all="ignore"):
        draft.forward(features * 1e3, block)


def test_a_large_context_is_no_context_of_zeros():
    """The square of 1e25 does not fit float32; the context's scale does not matter all the same."""
    draft = small_draft(dtype=np.float32)
    features, block = inputs(draft.config, 4, 3)
    assert np.abs(draft.forward(features * 1e25, block) - draft.forward(features, block)).max() < 1e-4


@pytest.mark.parametrize(
    "wrong", [lambda out: out[:-1], lambda out: None, lambda out: out.tolist(), lambda out: out * np.nan]
)
def test_a_device_that_breaks_its_promise_is_named(wrong):
    host = small_draft()

    def device(name: str, rows: np.ndarray) -> np.ndarray:
        out = rows @ host.weights.source.tensors[name].T
        return wrong(out) if name == "layers.1.mlp.up_proj.weight" else out

    features, block = inputs(host.config, 4, 3)
    with pytest.raises(ValueError, match="mlp"):
        Draft(host.weights, gemm=device).forward(features, block)
