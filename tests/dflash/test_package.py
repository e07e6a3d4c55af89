"""Packages written and opened again: every documented form, the bytes, the bounds, and what cannot be written."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.dflash.config import parse_config, read_config
from draftmill.dflash.inventory import Role, Variant, expected_tensors
from draftmill.dflash.layout import Layout
from draftmill.dflash.package import Package, write
from draftmill.dflash.rope import Rope
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.dflash.vendor_config import vendor_config
from draftmill.outcome import BadConfiguration, Refused
from draftmill.q4nx.container import Container
from draftmill.q4nx.encodings import Kind
from draftmill.q4nx.writing import Stored
from tests.dflash.published import BOLT, FULL, MUSE, QWEN3_8B, QWEN36_27B, QWEN38
from tests.support.checkpoints import to_bf16
from tests.support.dflash_packages import (
    CONFIG_FORMS,
    LAYOUTS,
    SECOND_LAYOUTS,
    SMALLEST,
    edit_config,
    edit_container,
    tiny,
)

ENCODINGS = [(1, Kind.Q4_1), (1, Kind.Q4_K), (2, Kind.Q4_K)]


def refusals(folder: Path) -> list[str]:
    with pytest.raises(Refused) as refused:
        Package.open(folder)
    return [refusal.code for refusal in refused.value.refusals]


def as_bf16(values: np.ndarray) -> np.ndarray:
    return (to_bf16(values).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("content", [BOLT, QWEN38, MUSE, QWEN3_8B, QWEN36_27B], ids=["Bolt", "27B", "Muse", "8B", "36"])
def test_the_vendors_form_of_a_config_means_the_same(content: dict[str, Any]) -> None:
    config = parse_config(content)
    written = parse_config(json.loads(json.dumps(vendor_config(config))))
    assert written == dataclasses.replace(config, vendor=True)
    assert written.unknown == ()
    assert [remark.code for remark in written.remarks] == ["dflash.layer_ids_known"]


def test_a_rare_config_survives_the_vendors_form_too() -> None:
    rare = synthetic_config(
        1,
        layer_types=(FULL, FULL),
        sliding_window=None,
        rope=Rope(1e4, "yarn", {"factor": 4.0, "original_max_position_embeddings": 4096}),
        input_embedding_scale=50.596,
        final_logit_softcapping=30.0,
        max_position_embeddings=None,
        num_target_layers=None,
    )
    assert parse_config(vendor_config(rare)) == rare
    causal = synthetic_config(2, causal=True, rope=rare.rope)
    assert parse_config(vendor_config(causal)) == causal


@pytest.mark.parametrize(("generation", "encoding"), ENCODINGS)
def test_what_is_read_back_is_what_was_given_within_the_encodings_bound(
    tmp_path: Path, generation: Any, encoding: Kind
) -> None:
    config = synthetic_config(generation)
    given = synthetic_tensors(config)
    written = write(tmp_path / "draft", config, given, encoding=encoding)
    with Package.open(tmp_path / "draft") as package:
        assert package.config == config
        for error in written.errors:
            values = package.decode(error.name)
            source = given[error.name]
            assert values.shape == source.shape
            if error.kind in ("bf16", "block-matrix bf16"):
                np.testing.assert_array_equal(values, as_bf16(source))
            else:
                # Never worse than the plain range: half of a fifteenth of it, and what rounding the line to bf16 adds.
                groups, off = source.reshape(len(source), -1, 32), (values - source).reshape(len(source), -1, 32)
                bound = (groups.max(-1) - groups.min(-1)) / 30 + 2**-8 * np.abs(groups).max(-1)
                assert (np.sqrt((off**2).mean(-1)) <= bound).all()
                assert error.relative_rms is not None
                assert 0.06 < error.relative_rms < 0.08  # AIR: about 0.997 against the source; ENG: 0.079
            off = (values - source).astype(np.float64)
            assert error.largest == pytest.approx(np.abs(off).max(), abs=1e-12)
            assert error.relative_rms == pytest.approx(np.linalg.norm(off) / np.linalg.norm(source), rel=1e-5)
            cosine = np.vdot(values, source) / np.linalg.norm(values) / np.linalg.norm(source)
            assert error.cosine == pytest.approx(float(cosine), abs=1e-5)
    assert [error.name for error in written.errors] == [each.name for each in expected_tensors(config, scalars=False)]


def test_fc_lies_in_blocks_of_32_rows_column_by_column(tmp_path: Path) -> None:
    config = synthetic_config(1)
    tensors = synthetic_tensors(config)
    write(tmp_path / "draft", config, tensors, encoding=Kind.Q4_1)
    with Container.open(tmp_path / "draft" / "model.q4nx") as container:
        assert container.tensors["model.fc.weight"].shape == (8, 768, 32)
        assert container.tensors["model.fc.weight"].dtype == "BF16"
        stored = container.bytes("model.fc.weight").view("<u2").copy()
    expected = to_bf16(tensors["fc.weight"])
    for n, k in [(0, 0), (1, 0), (0, 1), (31, 767), (32, 0), (255, 767), (100, 300)]:
        assert stored[(n // 32) * 768 * 32 + k * 32 + n % 32] == expected[n, k]


def test_tiles_lie_row_by_row_over_the_grid(tmp_path: Path) -> None:
    config = synthetic_config(1)
    tensors = synthetic_tensors(config)
    weights = tensors["layers.0.self_attn.o_proj.weight"]  # 256 x 512: 8 x 2 tiles
    weights[:] = 0
    weights[32:64, 256:] = np.linspace(-0.05, 0.05, 256)  # only tile 3 has anything in it
    write(tmp_path / "draft", config, tensors, encoding=Kind.Q4_1)
    with Container.open(tmp_path / "draft" / "model.q4nx") as container:
        chunks = container.bytes("model.layers.0.self_attn.o_proj.weight").reshape(16, 5120)
    minimums = [bool(chunk[512:1024].any()) for chunk in chunks]
    assert minimums == [i == 3 for i in range(16)]


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("generation", [1, 2])
def test_every_documented_layout_opens_as_the_same_draft(tmp_path: Path, generation: Any, name: str) -> None:
    tiny(tmp_path / "plain", generation, scalars=True, **SMALLEST)
    tiny(tmp_path / "varied", generation, scalars=True, layout=LAYOUTS[name], **SMALLEST)
    with Package.open(tmp_path / "plain") as plain, Package.open(tmp_path / "varied") as varied:
        assert plain.config == varied.config
        assert plain.inventory.by_name.keys() == varied.inventory.by_name.keys()
        np.testing.assert_array_equal(plain.decode("fc.weight"), varied.decode("fc.weight"))
        different = varied.container.tensors != plain.container.tensors
    default = Layout(form="flat" if generation == 1 else "grid")
    assert different == (LAYOUTS[name] not in (Layout(), default))


@pytest.mark.parametrize("name", SECOND_LAYOUTS)
def test_generation_2_opens_with_each_documented_encoding_of_its_own_tensors(tmp_path: Path, name: str) -> None:
    tiny(tmp_path / "draft", 2, layout=SECOND_LAYOUTS[name], **SMALLEST)
    with Package.open(tmp_path / "draft") as package:
        met = {variant.met for variant in package.inventory.variants}
        assert {"bf16 codebooks": "bf16", "norms and kernels as f32": "F32"}.get(name, ".weight") in met


@pytest.mark.parametrize("name", CONFIG_FORMS)
@pytest.mark.parametrize("generation", [1, 2])
def test_every_place_of_a_configs_keys_opens_as_the_same_draft(tmp_path: Path, generation: Any, name: str) -> None:
    tiny(tmp_path / "draft", generation, form=CONFIG_FORMS[name])
    with Package.open(tmp_path / "draft") as package:
        assert package.config == synthetic_config(generation)


def test_the_variants_that_were_met_are_recorded(tmp_path: Path) -> None:
    tiny(tmp_path / "draft", 1, layout=Layout(tensor_prefix="", scalar_prefix="", form="grid"))
    with Package.open(tmp_path / "draft") as package:
        assert set(package.inventory.variants) == {
            Variant("scalar prefix", "", 6),
            Variant("tensor prefix", "", 25),
            Variant("projection", "q4_1", 14),
            Variant("norm", "BF16", 10),
            Variant("fusion matrix", "block-matrix bf16", 1),
            Variant("scalar", "I32", 3),
            Variant("scalar", "F32", 3),
            Variant("tile order", "grid", 14),
        }


def test_codebooks_are_read_by_row(tmp_path: Path) -> None:
    tiny(tmp_path / "draft", 2)
    rows = np.array([0, 31, 32, 511, 5, 5])
    with Package.open(tmp_path / "draft") as package:
        whole = package.decode("candidate_selector.successor_codebook")
        found = package.decode_rows("candidate_selector.successor_codebook", rows)
        np.testing.assert_array_equal(found, whole[rows])
        with pytest.raises(ValueError, match="no matrix"):
            package.decode_rows("norm.weight", rows)


@pytest.mark.parametrize("generation", [1, 2])
def test_columns_are_padded_to_whole_tiles_and_reported(tmp_path: Path, generation: Any) -> None:
    written = tiny(tmp_path / "draft", generation, hidden_size=384, **SMALLEST)
    padded = {error.name: error.padded_columns for error in written.errors}
    assert padded["layers.0.self_attn.q_proj.weight"] == 128
    assert padded["layers.0.mlp.down_proj.weight"] == 0
    assert padded["fc.weight"] == (0 if generation == 1 else 128)  # 3 x 384 = 1152, 5 tiles of 256
    with Package.open(tmp_path / "draft") as package:
        assert package.decode("layers.0.self_attn.q_proj.weight").shape == (512, 384)


def test_the_manifest_is_what_sha256sum_checks(tmp_path: Path) -> None:
    written = tiny(tmp_path / "draft")
    lines = (tmp_path / "draft" / "MANIFEST.sha256").read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == ["config.json", "model.q4nx"]
    for line, file in zip(lines, written.files, strict=True):
        digest, name = line.split("  ")
        content = (tmp_path / "draft" / name).read_bytes()
        assert digest == hashlib.sha256(content).hexdigest() == file.sha256
        assert file.size == len(content)
    tiny(tmp_path / "bare", manifest=False)
    assert sorted(os.listdir(tmp_path / "bare")) == ["config.json", "model.q4nx"]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    config = synthetic_config(2, **SMALLEST)
    a, b, c = (
        write(tmp_path / name, config, synthetic_tensors(config, seed), encoding=Kind.Q4_K).files
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert a == b
    assert a != c


def test_a_package_is_whole_or_not_there(tmp_path: Path) -> None:
    config = synthetic_config(1)
    tensors = synthetic_tensors(config)
    tensors["layers.1.mlp.down_proj.weight"][3, 4] = np.nan
    with pytest.raises(Refused) as refused:
        write(tmp_path / "draft", config, tensors, encoding=Kind.Q4_1)
    assert (refused.value.code, refused.value.where) == ("q4nx.not_encodable", "layers.1.mlp.down_proj.weight")
    assert os.listdir(tmp_path) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    config = synthetic_config(1, **SMALLEST)
    (tmp_path / "draft").mkdir()
    write(tmp_path / "draft", config, synthetic_tensors(config), encoding=Kind.Q4_1)
    before = (tmp_path / "draft" / "model.q4nx").read_bytes()
    with pytest.raises(BadConfiguration, match="is there already"):
        write(tmp_path / "draft", config, synthetic_tensors(config, 1), encoding=Kind.Q4_1)
    assert (tmp_path / "draft" / "model.q4nx").read_bytes() == before


def test_all_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    config = synthetic_config(2, head_dim=36)  # 8 x 36 = 288 rows are whole tiles, 4 x 36 = 144 are not
    tensors = synthetic_tensors(config)
    del tensors["norm.weight"]
    tensors["fc.weight"] = tensors["fc.weight"][:, :-1]
    tensors["lm_head.weight"] = np.zeros((2, 2), np.float32)
    with pytest.raises(Refused) as refused:
        write(tmp_path / "draft", config, tensors, encoding=Kind.Q4_1)
    assert {(refusal.code, refusal.where) for refusal in refused.value.refusals} == {
        ("dflash.encoding_unexpected", "encoding"),
        ("dflash.tensor_missing", "norm.weight"),
        ("dflash.shape_unexpected", "fc.weight"),
        ("dflash.tensor_unexplained", "lm_head.weight"),
        *(
            ("dflash.rows_not_whole_tiles", f"layers.{i}.self_attn.{part}_proj.weight")
            for i in range(2)
            for part in ("k", "v")
        ),
    }
    assert not (tmp_path / "draft").exists()


def test_a_scalar_that_its_label_cannot_hold_is_refused(tmp_path: Path) -> None:
    config = synthetic_config(1, rope=Rope(1e39), **SMALLEST)
    tensors = synthetic_tensors(config)
    write(tmp_path / "double", config, tensors, encoding=Kind.Q4_1, layout=Layout(real_label="F64"))
    with pytest.raises(Refused) as refused:
        write(tmp_path / "single", config, tensors, encoding=Kind.Q4_1)
    assert (refused.value.code, refused.value.where) == ("dflash.scalar_unstorable", "rope_theta")


def test_a_layout_takes_only_what_pages_leave_open() -> None:
    for choice in ({"tensor_prefix": "x."}, {"codebooks": Kind.Q4_1}, {"whole_label": "BOOL"}, {"small": Kind.Q8}):
        with pytest.raises(ValueError, match="none of"):
            Layout(**choice)


def mutate(name: str, **changes: Any) -> Any:
    def change(tensors: dict[str, Stored]) -> None:
        tensors[name] = dataclasses.replace(tensors[name], **changes)

    return change


def put(name: str, tensor: Stored | None) -> Any:
    def change(tensors: dict[str, Stored]) -> None:
        tensors.pop(name, None)
        if tensor:
            tensors[name] = tensor

    return change


Q = "model.layers.0.self_attn.q_proj.weight"  # 512 x 256: 16 tiles
NORM = "model.norm.weight"


def zeros(dtype: str, *shape: int) -> Stored:
    size = {"I8": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4, "BOOL": 1}[dtype]
    return Stored(dtype, shape, np.zeros(int(np.prod(shape)) * size, np.uint8))


BROKEN = [
    (1, put(Q, zeros("I8", 15, 5120)), "q4nx.tile_count"),
    (1, put(Q, zeros("I8", 16, 5121)), "q4nx.chunk_unknown"),
    (1, put(Q, zeros("I8", 16, 8704)), "dflash.encoding_unexpected"),
    (1, put(Q, zeros("BF16", 512, 256)), "dflash.encoding_unexpected"),
    (1, put(Q, zeros("F16", 512, 80)), "q4nx.dtype_unexpected"),
    (1, put(Q, zeros("I8", 16, 4736)), "dflash.encodings_mixed"),
    (2, put(Q, zeros("I8", 16, 1, 5120)), "dflash.encoding_unexpected"),
    (1, put("model.fc.weight", zeros("BF16", 256, 768)), "dflash.encoding_unexpected"),
    (2, put("model.fc.weight", zeros("BF16", 8, 768, 32)), "dflash.encodings_mixed"),
    (1, put(Q, zeros("BF16", 16, 256, 32)), "dflash.encodings_mixed"),
    (1, put(NORM, zeros("F32", 256)), "dflash.dtype_unexpected"),
    (2, put(NORM, zeros("F16", 256)), "dflash.dtype_unexpected"),
    (1, put(NORM, zeros("BF16", 255)), "dflash.shape_unexpected"),
    (2, put("model.layers.0.mlp_conv.base_kernel", zeros("BF16", 256, 2, 2)), "dflash.shape_unexpected"),
    (2, put("model.candidate_selector.predecessor_codebook", zeros("BF16", 16, 256, 32)), "dflash.encoding_unexpected"),
    (1, put(NORM, None), "dflash.tensor_missing"),
    (1, put("model.extra", zeros("F32", 1)), "dflash.tensor_unexplained"),
    (1, put("norm.weight", zeros("BF16", 256)), "dflash.tensor_twice"),
    (1, put("dflash.block_size", zeros("I32", 1)), "dflash.scalar_differs"),
    (1, put("dflash.block_size", zeros("BOOL", 1)), "q4nx.dtype_unexpected"),
    (1, put("dflash.block_size", zeros("I32", 2)), "dflash.scalar_shape"),
    (1, put("dflash.target_layer_ids", zeros("I32", 2)), "dflash.scalar_shape"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("generation", "change", "code"), BROKEN, ids=[f"{c}-{i}" for i, (_, _, c) in enumerate(BROKEN)]
)
def test_a_container_that_is_not_what_its_config_says_does_not_open(
    tmp_path: Path, generation: Any, change: Any, code: str
) -> None:
    tiny(tmp_path / "draft", generation)
    edit_container(tmp_path / "draft", lambda tensors: None)
    Package.open(tmp_path / "draft").close()
    edit_container(tmp_path / "draft", change)
    assert refusals(tmp_path / "draft") == [code]


def test_a_config_of_another_draft_is_told_from_the_tiles(tmp_path: Path) -> None:
    tiny(tmp_path / "draft")
    edit_config(tmp_path / "draft", lambda content: content | {"head_dim": 128})
    found = refusals(tmp_path / "draft")
    # q, k, v and o of two layers by their tiles, and the q and k norms of two layers by their length.
    assert sorted(found) == ["dflash.shape_unexpected"] * 4 + ["q4nx.tile_count"] * 8


def test_shifted_ids_in_a_container_are_called_so(tmp_path: Path) -> None:
    tiny(tmp_path / "draft")
    ids = np.array([2, 6, 10], "<i4").view(np.uint8)
    edit_container(tmp_path / "draft", mutate("dflash.target_layer_ids", data=ids))
    with pytest.raises(Refused) as refused:
        Package.open(tmp_path / "draft")
    (refusal,) = refused.value.refusals
    assert (refusal.code, refusal.measured, refusal.expected) == ("dflash.scalar_differs", [2, 6, 10], [1, 5, 9])
    assert "GGUF" in refusal.sentence


def rename(folder: Path, *names: str) -> None:
    content = (folder / "model.q4nx").read_bytes()
    (folder / "model.q4nx").unlink()
    for name in names:
        (folder / name).write_bytes(content)


def test_the_container_is_the_named_one_or_the_usual_or_the_only_one(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    tiny(folder)
    rename(folder, "draft.q4nx", "vision_weight.q4nx")
    with Package.open(folder) as package:
        assert package.container.path.name == "draft.q4nx"
    (folder / "other.q4nx").write_bytes(b"")
    assert refusals(folder) == ["dflash.container_ambiguous"]
    edit_config(folder, lambda content: content | {"weight_file": "draft.q4nx"})
    Package.open(folder).close()
    edit_config(folder, lambda content: content | {"weight_file": "absent.q4nx"})
    assert refusals(folder) == ["dflash.container_missing"]
    edit_config(folder, lambda content: content | {"weight_file": "../draft.q4nx"})
    assert refusals(folder) == ["dflash.weight_path"]


def test_a_package_without_a_container_and_one_that_links_out_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    tiny(folder)
    (folder / "model.q4nx").rename(tmp_path / "elsewhere.q4nx")
    assert refusals(folder) == ["dflash.container_missing"]
    (folder / "model.q4nx").symlink_to(tmp_path / "elsewhere.q4nx")
    assert refusals(folder) == ["dflash.weight_path"]


@pytest.mark.parametrize("generation", [1, 2])
def test_synthetic_weights_look_like_real_ones(tmp_path: Path, generation: Any) -> None:
    tiny(tmp_path / "draft", generation)
    with Package.open(tmp_path / "draft") as package:
        located = package.inventory.by_name["layers.0.mlp.up_proj.weight"]
        chunks = package.container.bytes(located.entry.name).reshape(-1, located.entry.shape[-1])
        if generation == 1:
            plane = chunks[:, :1024].copy().view("<u2").astype(np.uint32) << 16
            scales, minimums = np.split(plane.view(np.float32), 2, axis=1)
        else:
            rows = (chunks[:, 4608:].copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
            scales = chunks[:, :256].reshape(-1, 8, 32) * rows[:, None, :32]
            minimums = chunks[:, 256:512].reshape(-1, 8, 32) * rows[:, None, 32:]
    # q4nx.md 3.1: -7.59 to -7.33 per tensor of a real draft.
    assert -7.6 < np.median(minimums / scales) < -7.2
    assert (scales > 0).all()


def test_a_read_config_is_the_packages(tmp_path: Path) -> None:
    tiny(tmp_path / "draft", 2)
    assert read_config(tmp_path / "draft") == synthetic_config(2)
    roles = {each.role for each in expected_tensors(synthetic_config(2), scalars=False)}
    assert roles == set(Role) - {Role.SCALAR}
