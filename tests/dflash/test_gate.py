"""The gate: sound packages in every documented form pass, and what is wrong is said whole, by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_result import Gate, Outcome, Verdict
from draftmill.dflash.gate_table import BY_ID, CHECKS, HOMES, SHAPES
from draftmill.dflash.layout import Layout
from draftmill.outcome import BadConfiguration
from draftmill.q4nx.encodings import Kind
from tests.support.dflash_packages import CONFIG_FORMS, LAYOUTS, SECOND_LAYOUTS, edit_config, edit_container, tiny


def caught(result: Gate) -> list[str]:
    return [check.id for check in result.checks if check.outcome in (Outcome.REFUSED, Outcome.UNDETERMINED)]


def check(result: Gate, name: str) -> Any:
    return next(each for each in result.checks if each.id == name)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound package of generation 1, to be left as it is."""
    folder = tmp_path_factory.mktemp("gate") / "package"
    tiny(folder, 1)
    return folder


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_documented_form_of_a_first_generation_container_passes(name: str, tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1, layout=LAYOUTS[name])
    result = gate(tmp_path / "p")
    assert result.verdict == Verdict.PASS
    assert caught(result) == []


@pytest.mark.parametrize("scalars", [True, False])
@pytest.mark.parametrize("name", [*SECOND_LAYOUTS, "no prefix at all", "flat tiles"])
def test_every_documented_form_of_a_second_generation_container_passes(
    name: str, scalars: bool, tmp_path: Path
) -> None:
    tiny(tmp_path / "p", 2, layout=(LAYOUTS | SECOND_LAYOUTS)[name], scalars=scalars)
    result = gate(tmp_path / "p")
    assert result.verdict == Verdict.PASS
    assert caught(result) == []


@pytest.mark.parametrize("form", CONFIG_FORMS)
@pytest.mark.parametrize("generation", [1, 2])
def test_every_place_of_a_configs_keys_passes(form: str, generation: Any, tmp_path: Path) -> None:
    tiny(tmp_path / "p", generation, form=CONFIG_FORMS[form])
    assert caught(gate(tmp_path / "p")) == []


def test_a_first_generation_draft_in_q4_k_passes_and_is_recorded(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1, encoding=Kind.Q4_K)
    result = gate(tmp_path / "p")
    assert result.verdict == Verdict.PASS
    assert ("projection", "q4_k", 14) in [(each.what, each.met, each.count) for each in result.variants]


@pytest.mark.parametrize("encoding", [Kind.Q4_1, Kind.Q4_K])
def test_the_real_small_draft_passes_and_its_fusion_matrix_shows_its_order(
    encoding: Kind, smollm2_dflash: Path, tmp_path: Path
) -> None:
    """Its 576 columns are padded to 768."""
    from draftmill.dflash.packing import pack

    pack(smollm2_dflash, tmp_path / "p", encoding)
    result = gate(tmp_path / "p")
    assert result.verdict == Verdict.PASS
    assert caught(result) == []
    assert check(result, "tensors.present").measured == 42
    assert check(result, "norms.finite").measured["negative"] == 2


def test_variants_that_were_met_are_recorded(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1, layout=Layout(tensor_prefix="", scalar_prefix="", whole_label="I64", aligned=True))
    met = {each.what: each.met for each in gate(tmp_path / "p").variants}
    assert met["tensor prefix"] == ""
    assert met["scalar prefix"] == ""
    assert met["scalar labels and shapes"] == "F32, I64; [1], [3]"
    assert met["header"] == "metadata keys"
    assert met["manifest lines"] == "sha256sum"


def test_every_failing_check_is_said_and_not_only_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)

    def spoil(tensors: dict[str, Any]) -> None:
        del tensors["model.norm.weight"]
        tensors["model.layers.0.mlp.up_proj.weight"].data[:2] = [0xC0, 0x7F]
        tensors["model.layers.1.mlp.up_proj.weight"].data[:2] = [0, 0]
        tensors["dflash.block_size"].data[0] = 16

    edit_container(folder, spoil)
    (folder / "MANIFEST.sha256").write_text("0" * 64 + "  config.json\n")
    result = gate(folder)
    assert result.verdict == Verdict.REFUSED
    assert caught(result) == [
        "manifest.container",
        "manifest.digests",
        "tensors.present",
        "scales.finite",
        "scales.positive",
        "scalars.block_size",
    ]
    assert {refusal.code for refusal in result.refusals} == {
        "gate.manifest_container", "gate.digest", "dflash.tensor_missing", "gate.scales_finite", "gate.scales_positive",
        "dflash.scalar_differs",
    }  # fmt: skip
    found = next(refusal for refusal in result.refusals if refusal.code == "gate.scales_finite")
    assert found.where == "model.q4nx:model.layers.0.mlp.up_proj.weight"
    assert "row 0 from column 0 on" in found.sentence


def test_a_refused_config_does_not_hide_what_is_wrong_with_the_container(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)
    edit_config(folder, lambda content: content | {"attention_bias": True, "mask_token_id": 9})
    path = folder / "model.q4nx"
    path.write_bytes(path.read_bytes()[:-1])
    result = gate(folder)
    assert caught(result) == ["manifest.digests", "config.places", "config.extensions", "container.header"]
    assert check(result, "scales.finite").outcome == Outcome.NOT_RUN
    assert check(result, "scales.finite").evidence == (
        "not run, because the container's header is refused or cannot be read"
    )


@pytest.mark.parametrize(
    ("key", "value", "check_id"),
    [
        ("mask_token_id", 512, "config.mask"),
        ("target_layer_ids", [1, 5, 99], "config.layer_ids"),
        ("target_layer_ids", [1, 5, 5], "config.layer_ids"),
        ("attention_bias", True, "config.extensions"),
    ],
)
def test_a_bad_value_that_shapes_no_tensor_hides_nothing_of_the_container(
    key: str, value: Any, check_id: str, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)

    def change(content: dict[str, Any]) -> dict[str, Any]:
        (content if key == "attention_bias" else content["dflash_config"])[key] = value
        return content

    def spoil(tensors: dict[str, Any]) -> None:
        tensors["model.layers.0.mlp.up_proj.weight"].data[:2] = [0xC0, 0x7F]

    edit_config(folder, change)
    edit_container(folder, spoil)
    found = caught(gate(folder))
    assert {check_id, "scales.finite"} <= set(found)
    assert ("scalars.target_layer_ids" in found) == (key == "target_layer_ids")


def test_a_check_that_was_not_reached_is_never_a_pass(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    result = gate(tmp_path / "p")
    assert caught(result) == ["config.form", "container.found"]
    assert result.of(Outcome.PASS) == (check(result, "files.links"),)


def test_where_a_bad_group_lies_is_said_in_rows_and_columns(tmp_path: Path) -> None:
    """Tile 1 of a matrix of 256 x 512 begins at column 256; group 3 of row 5 has its scale at 2 (32 x 3 + 5)."""
    folder = tmp_path / "p"
    tiny(folder, 1)

    def spoil(tensors: dict[str, Any]) -> None:
        tensors["model.layers.0.mlp.down_proj.weight"].data[5120 + 2 * (32 * 3 + 5) :][:2] = [0, 0]

    edit_container(folder, spoil)
    (refusal,) = gate(folder).refusals
    assert "1 scales are zero or negative, the first of row 5 from column 352 on" in refusal.sentence


def test_a_negative_gain_is_counted_and_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)
    edit_container(folder, lambda tensors: tensors["model.norm.weight"].data.__setitem__(1, 0xBA))
    result = gate(folder)
    assert result.verdict == Verdict.PASS
    assert check(result, "norms.finite").measured == {"norms": 10, "negative": 1}


def test_an_order_that_the_data_cannot_tell_is_undetermined_and_said_but_not_refused(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)

    def shuffle(tensors: dict[str, Any]) -> None:
        stored = tensors["model.fc.weight"].data.view("<u2")
        np.random.default_rng(0).shuffle(stored)

    edit_container(folder, shuffle)
    result = gate(folder)
    assert caught(result) == ["fusion.order"]
    assert check(result, "fusion.order").outcome == Outcome.UNDETERMINED
    assert result.verdict == Verdict.PASS
    assert "undetermined: fusion matrix is in the declared order" in result.sentence


def test_unused_rows_of_a_codebook_may_be_zero_and_a_projections_may_not(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 2)
    book, projection = "model.candidate_selector.successor_codebook", "model.layers.0.self_attn.v_proj.weight"

    def clear(name: str) -> None:
        edit_container(folder, lambda tensors: tensors[name].data[:4736].fill(0))

    clear(book)
    result = gate(folder)
    assert result.verdict == Verdict.PASS
    assert "256 of them of unused rows" in check(result, "scales.positive").evidence
    clear(projection)
    assert caught(gate(folder)) == ["scales.positive"]


def test_column_padding_is_reported_and_its_factors_may_be_zero(tmp_path: Path) -> None:
    """Of 64 columns of 256, six groups are padding: their scale may be anything finite."""
    folder = tmp_path / "p"
    tiny(folder, 1, hidden_size=64, intermediate_size=64)
    name = "model.layers.0.mlp.gate_proj.weight"
    edit_container(folder, lambda tensors: tensors[name].data[2 * 64 : 512].fill(0))
    result = gate(folder)
    assert result.verdict == Verdict.PASS
    figures = next(tensor.figures for tensor in result.tensors if tensor.stored_as == name)
    assert figures["padded_columns"] == 192
    edit_container(folder, lambda tensors: tensors[name].data[2 * 63 : 512].fill(0))
    assert caught(gate(folder)) == ["scales.positive"]


def test_a_package_without_a_manifest_passes_and_says_that_nothing_vouches_for_it(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1, manifest=False)
    result = gate(tmp_path / "p")
    assert result.verdict == Verdict.PASS
    assert "nothing here vouches" in check(result, "manifest.digests").evidence


def test_what_the_config_says_and_nothing_reads_is_a_remark(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1, form=lambda content: content | {"flm_speculation": 3})
    result = gate(tmp_path / "p")
    assert result.verdict == Verdict.PASS
    assert ("gate.unread_key", "config.json:flm_speculation") in [(each.code, each.where) for each in result.remarks]


def test_the_result_is_the_same_json_each_time_and_holds_no_path_of_the_machine(first: Path) -> None:
    texts = {json.dumps(gate(first).as_json(), allow_nan=False) for _ in range(2)}
    assert len(texts) == 1
    assert str(first.parent) not in texts.pop()


def test_nothing_is_written_beside_the_package(first: Path) -> None:
    def listing() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in first.parent.rglob("*")}

    before = listing()
    gate(first)
    assert listing() == before


def test_each_byte_is_read_once(first: Path) -> None:
    assert gate(first).bytes_read == sum(path.stat().st_size for path in first.iterdir())


def test_what_is_no_folder_is_the_callers_mistake(first: Path) -> None:
    with pytest.raises(BadConfiguration, match="give the package's folder"):
        gate(first / "config.json")


def test_every_home_of_a_refusal_is_a_check() -> None:
    assert {*HOMES.values(), *SHAPES.values()} <= BY_ID.keys()
    assert len(BY_ID) == len(CHECKS)
