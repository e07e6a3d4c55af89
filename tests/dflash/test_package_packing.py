"""Packing upstream checkpoints: every spelling and number type, the real small draft, and what is refused."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.dflash.config import read_config
from draftmill.dflash.inventory import Variant
from draftmill.dflash.package import Package
from draftmill.dflash.packing import pack
from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Kind
from tests.dflash.published import SLIDING
from tests.support.checkpoints import to_bf16, write_safetensors
from tests.support.dflash_packages import SMALLEST, checkpoint

SPELLINGS: dict[str, tuple[Callable[[str], str], list[Variant]]] = {
    "upstream": (str, []),
    "with model.": (lambda name: f"model.{name}", [Variant("tensor prefix", "model.", 14)]),
    "encoder": (
        lambda name: {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}.get(
            name, name
        ),
        [Variant("alias", "encoder.", 2)],
    ),
    "midlayer": (lambda name: name.replace("layers.0.", "midlayer."), [Variant("alias", "midlayer.", 11)]),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_checkpoint_is_packed_under_every_spelling_of_its_names(tmp_path: Path, spelling: str) -> None:
    names, variants = SPELLINGS[spelling]
    given = checkpoint(tmp_path / "hf", names=names, **SMALLEST)
    packed = pack(tmp_path / "hf", tmp_path / "draft")
    assert set(variants) <= set(packed.variants)
    with Package.open(tmp_path / "draft") as package:
        assert package.config.vendor
        np.testing.assert_array_equal(package.decode("fc.weight"), given["fc.weight"])
        values = package.decode("layers.0.mlp.down_proj.weight")
    assert 0.996 < np.corrcoef(values.ravel(), given["layers.0.mlp.down_proj.weight"].ravel())[0, 1] < 0.999


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_every_number_type_of_a_checkpoint_is_read(tmp_path: Path, dtype: Any) -> None:
    given = checkpoint(tmp_path / "hf", dtype=dtype, **SMALLEST)
    packed = pack(tmp_path / "hf", tmp_path / "draft")
    with Package.open(tmp_path / "draft") as package:
        rounded = (to_bf16(given["norm.weight"]).astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(package.decode("norm.weight"), rounded)
    errors = {error.name: error for error in packed.written.errors}
    assert (errors["norm.weight"].largest == 0) is (dtype == "BF16")


@pytest.mark.parametrize(
    ("generation", "encoding", "met"), [(1, None, "q4_1"), (2, None, "q4_k"), (1, Kind.Q4_K, "q4_k")]
)
def test_the_encoding_is_the_generations_unless_asked(
    tmp_path: Path, generation: Any, encoding: Kind | None, met: str
) -> None:
    checkpoint(tmp_path / "hf", generation, **SMALLEST)
    assert pack(tmp_path / "hf", tmp_path / "draft", encoding).encoding.value == met
    with Package.open(tmp_path / "draft") as package:
        assert Variant("projection", met, 7) in package.inventory.variants


def test_generation_2_is_not_packed_as_q4_1(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", 2, **SMALLEST)
    with pytest.raises(Refused) as refused:
        pack(tmp_path / "hf", tmp_path / "draft", Kind.Q4_1)
    assert [refusal.code for refusal in refused.value.refusals] == ["dflash.encoding_unexpected"]
    assert not (tmp_path / "draft").exists()


def test_causality_that_is_told_is_stated_in_the_package(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    content = json.loads((tmp_path / "hf" / "config.json").read_text())
    del content["dflash_config"]["causal"]
    (tmp_path / "hf" / "config.json").write_text(json.dumps(content))
    with pytest.raises(Refused) as refused:
        pack(tmp_path / "hf", tmp_path / "draft")
    assert refused.value.code == "dflash.causality_not_stated"
    pack(tmp_path / "hf", tmp_path / "draft", causal=True)
    config = read_config(tmp_path / "draft")
    assert (config.causal, config.stated("causal"), config.layer_types) == (True, True, (SLIDING,))


def test_a_head_of_its_own_and_a_missing_tensor_are_refused_together(tmp_path: Path) -> None:
    def names(name: str) -> str:
        return "lm_head.weight" if name == "norm.weight" else name

    checkpoint(tmp_path / "hf", names=names, **SMALLEST)
    with pytest.raises(Refused) as refused:
        pack(tmp_path / "hf", tmp_path / "draft")
    found = [(refusal.code, refusal.where) for refusal in refused.value.refusals]
    assert found == [
        ("dflash.tensor_missing", "checkpoint:norm.weight"),
        ("dflash.tensor_unexplained", "checkpoint:lm_head.weight"),
    ]


def test_licences_come_along_and_are_in_the_manifest(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", **SMALLEST)
    (tmp_path / "hf" / "LICENSE").write_text("terms")
    (tmp_path / "hf" / "notes.txt").write_text("not a licence")
    pack(tmp_path / "hf", tmp_path / "draft")
    assert sorted(os.listdir(tmp_path / "draft")) == ["LICENSE", "MANIFEST.sha256", "config.json", "model.q4nx"]
    assert "  LICENSE\n" in (tmp_path / "draft" / "MANIFEST.sha256").read_text()
    assert stat.S_IMODE((tmp_path / "draft").stat().st_mode) == 0o755


def test_progress_ends_where_it_said(tmp_path: Path) -> None:
    checkpoint(tmp_path / "hf", 2, **SMALLEST)
    seen: list[tuple[int, int]] = []
    pack(tmp_path / "hf", tmp_path / "draft", progress=lambda what, done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [Kind.Q4_1, Kind.Q4_K])
def test_the_real_small_draft_is_packed(tmp_path: Path, smollm2_dflash: Path, encoding: Kind) -> None:
    packed = pack(smollm2_dflash, tmp_path / "draft", encoding)
    # 3 layers: 3 x 11 + 3 tensors; 3 x 7 of them projections. 576 columns take 3 tiles of 256, 192 of them padding.
    assert len(packed.written.errors) == 36
    quantised = [error for error in packed.written.errors if error.kind == encoding.value]
    assert len(quantised) == 21
    assert all((error.cosine or 0) > 0.996 and (error.relative_rms or 1) < 0.08 for error in quantised)
    assert {error.padded_columns for error in quantised} == {0, 192}
    assert all(error.largest == 0 for error in packed.written.errors if error not in quantised)
    with Package.open(tmp_path / "draft") as package:
        assert package.config.target_layer_ids == (5, 14, 24)
        assert package.decode("fc.weight").shape == (576, 1728)


def changed(folder: Path, name: str, change: Callable[[np.ndarray], Any]) -> None:
    """A checkpoint of which one tensor is other than it should be."""
    values = checkpoint(folder, **SMALLEST)
    change(values[name])
    write_safetensors(folder / "model.safetensors", {each: to_bf16(value) for each, value in values.items()})


@pytest.mark.parametrize("name", ["layers.0.mlp.up_proj.weight", "fc.weight", "norm.weight"])
def test_a_tensor_of_zeros_is_not_packed(name: str, tmp_path: Path) -> None:
    changed(tmp_path / "hf", name, lambda values: values.fill(0))
    with pytest.raises(Refused) as caught:
        pack(tmp_path / "hf", tmp_path / "draft")
    (refusal,) = caught.value.refusals
    assert (refusal.code, refusal.where) == ("dflash.all_zero", name)
    assert "Take the checkpoint from its publisher again" in refusal.sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]


def test_what_the_gate_would_refuse_is_not_packed(tmp_path: Path) -> None:
    """A tap of the fusion matrix without weights."""
    changed(tmp_path / "hf", "fc.weight", lambda values: values[:, 256:512].fill(0))
    with pytest.raises(Refused) as caught:
        pack(tmp_path / "hf", tmp_path / "draft")
    (refusal,) = caught.value.refusals
    assert refusal.code == "gate.not_whole"
    assert "fails the gate's check weights.whole" in refusal.sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]
