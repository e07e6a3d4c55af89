"""The gate on values of no plausible size: what decodes to infinity, lone outliers, whole tensors, zeros."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_packed import PackedStatistics
from draftmill.dflash.gate_result import Gate, Outcome, Verdict
from draftmill.dflash.layout import Layout
from draftmill.dflash.storage import PUBLISHED
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import encode
from tests.support.dflash_packages import edit_container, tiny

PROJECTION, NORM, FUSION = "model.layers.0.mlp.up_proj.weight", "model.norm.weight", "model.fc.weight"


def bits(value: float) -> list[int]:
    """Little-endian bfloat16, cut off."""
    return list(np.float32(value).tobytes()[2:])


def gated(folder: Path, generation: Any, name: str, change: Callable[[np.ndarray], object]) -> Gate:
    tiny(folder, generation)

    def spoil(tensors: dict[str, Any]) -> None:
        change(tensors[name].data)

    edit_container(folder, spoil)
    return gate(folder)


def refused(result: Gate) -> list[str]:
    return [check.id for check in result.of(Outcome.REFUSED)]


def put(at: int, value: float) -> Callable[[np.ndarray], object]:
    return lambda data: data.__setitem__(slice(at, at + 2), bits(value))


def both(data: np.ndarray) -> None:
    """15 x 1.7e38 is above the largest float32, whatever is added."""
    data[:2], data[512:514] = bits(1.7e38), bits(-1.7e38)


def times(factor: float) -> Callable[[np.ndarray], object]:
    """All scales and minimums of q4_1."""

    def change(data: np.ndarray) -> None:
        plane = data.reshape(-1, 5120)[:, :1024]
        values = (plane.copy().view("<u2").astype(np.uint32) << 16).view(np.float32) * np.float32(factor)
        plane[:] = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)

    return change


@pytest.mark.parametrize(
    "change", [both, put(0, 8e6), put(0, 3.9e36), put(512, -3.9e36), times(1e20), times(1e-20)]
)  # fmt: skip
def test_packed_weights_of_no_plausible_size_are_refused(change: Any, tmp_path: Path) -> None:
    result = gated(tmp_path / "p", 1, PROJECTION, change)
    assert refused(result) == ["packed.magnitude"]
    assert PROJECTION in result.refusals[0].where


def test_a_row_of_a_second_generation_draft_that_is_too_large_is_named(tmp_path: Path) -> None:
    result = gated(tmp_path / "p", 2, PROJECTION, put(4608 + 2 * 5, 1e30))
    assert refused(result) == ["packed.magnitude"]
    assert "of row 5 from column 0 on" in result.refusals[0].sentence


def test_a_scale_far_above_the_others_is_refused_where_its_weights_are_not_too_large(tmp_path: Path) -> None:
    """Scales of about 0.005: 1500 is 300,000 times as much, and 15 x 1500 is below 2^16."""
    result = gated(tmp_path / "p", 1, PROJECTION, put(2 * 37, 1500))
    assert refused(result) == ["packed.magnitude"]
    assert "of row 5 from column 32 on" in result.refusals[0].sentence


@pytest.mark.parametrize("name", [NORM, FUSION])
@pytest.mark.parametrize("value", [1.7e38, -8e37, 2.0**17])
def test_a_plain_value_of_no_plausible_size_is_refused(name: str, value: float, tmp_path: Path) -> None:
    result = gated(tmp_path / "p", 1, name, put(6, value))
    assert refused(result) == ["norms.bfloat16" if name == NORM else "fusion.bfloat16"]
    assert "1 values are above 65536 in magnitude, the first at 3" in result.refusals[0].sentence


def test_gains_and_weights_that_are_merely_large_pass(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)

    def change(tensors: dict[str, Any]) -> None:
        put(6, 500)(tensors[NORM].data)
        put(6, 40)(tensors[FUSION].data)
        put(6, 10)(tensors[PROJECTION].data)

    edit_container(tmp_path / "p", change)
    assert gate(tmp_path / "p").verdict == Verdict.PASS


@pytest.mark.parametrize("sizes", [[1], [50], [400]])
@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q4_K])
def test_the_largest_scale_is_found_wherever_its_tile_lies(kind: Kind, sizes: list[int]) -> None:
    encoding = Encoding(kind, 32 * 400, 256, "flat")
    weights = np.random.default_rng(0).normal(0, 0.02, (32, 256)).astype(np.float32)
    chunks = np.tile(encode(Encoding(kind, 32, 256, "flat"), weights), 400).reshape(400, -1)
    chunks[173, (0 if kind == Kind.Q4_1 else 4608) + 2 * 9 :][:2] = bits(1.0)
    statistics = PackedStatistics(encoding)
    for at in range(0, 400, sizes[0]):
        statistics.take(at * chunks.shape[1], chunks[at : at + sizes[0]].reshape(-1).copy())
    assert statistics.faults["too_large"] == 0
    assert statistics.first_bad["largest_scale"][0] == 173 * 32 + 9
    assert statistics.largest_scale == (1.0 if kind == Kind.Q4_1 else chunks[173, 9:256:32].max())


KERNEL, CODEBOOK = "model.layers.0.attention_conv.base_kernel", "model.candidate_selector.successor_codebook"


@pytest.mark.parametrize("spread", [0.02, 1.0])
@pytest.mark.parametrize(("name", "check"), [(KERNEL, "conv.kernels"), (CODEBOOK, "codebooks.values")])
def test_half_floats_of_kernels_and_plain_codebooks_are_told(
    name: str, check: str, spread: float, tmp_path: Path
) -> None:
    """Of weights around 1 the 90th percentile is plausible as bfloat16 too: their spread is not."""
    tiny(tmp_path / "p", 2, layout=Layout(codebooks=Kind.BF16))
    values = np.random.default_rng(2).normal(0, spread, 1 << 20)

    def spoil(tensors: dict[str, Any]) -> None:
        data = tensors[name].data
        data[:] = values[: data.size // 2].astype("<f2").view(np.uint8)

    def mend(tensors: dict[str, Any]) -> None:
        data = tensors[name].data
        bfloat = (values[: data.size // 2].astype("<f4").view(np.uint32) >> 16).astype("<u2")
        data[:] = bfloat.view(np.uint8)

    edit_container(tmp_path / "p", spoil)
    assert refused(gate(tmp_path / "p")) == [check]
    edit_container(tmp_path / "p", mend)
    assert refused(gate(tmp_path / "p")) == []


@pytest.mark.parametrize("name", [NORM, FUSION])
def test_a_plain_tensor_of_zeros_is_called_that(name: str, tmp_path: Path) -> None:
    result = gated(tmp_path / "p", 1, name, lambda data: data.fill(0))
    (refusal,) = result.refusals
    assert refusal.measured == "all zero"
    assert "half float" not in refusal.sentence


@pytest.mark.parametrize("generation", [1, 2])
def test_a_projection_of_zeros_is_called_that_however_it_was_packed(generation: Any, tmp_path: Path) -> None:
    kind = PUBLISHED[generation]
    zeros = encode(Encoding(kind, 512, 256, "flat"), np.zeros((512, 256), np.float32))
    result = gated(tmp_path / "p", generation, "model.layers.0.mlp.up_proj.weight", lambda data: np.copyto(data, zeros))
    assert refused(result) == ["scales.positive"]
    (refusal,) = result.refusals
    assert refusal.measured == "all zero"
    assert "ack the draft again" not in refusal.sentence
