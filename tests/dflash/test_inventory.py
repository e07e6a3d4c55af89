"""The set of tensors a draft has, counted by hand, under every spelling that published files use."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from draftmill.dflash.config import DraftConfig, parse_config
from draftmill.dflash.inventory import Expected, Role, Variant, expected_tensors, match
from draftmill.dflash.synthetic import synthetic_config
from tests.dflash.published import BOLT, MUSE, QWEN38

FIRST, SECOND = synthetic_config(1), synthetic_config(2)


def all_names(config: DraftConfig, scalars: bool = False, prefix: str = "") -> list[str]:
    return [prefix + each.name for each in expected_tensors(config, scalars=scalars)]


@pytest.mark.parametrize(
    ("content", "scalars", "count"),
    [(BOLT, False, 58), (BOLT, True, 64), (QWEN38, False, 81), (MUSE, False, 81), (QWEN38, True, 87)],
)
def test_counts(content: dict[str, Any], scalars: bool, count: int) -> None:
    # 35 projections + 22 norms + fc = 58; + 6 scalars = 64; 58 + 4 x 5 + 3 = 81.
    assert len(expected_tensors(parse_config(content), scalars=scalars)) == count


def test_the_bolt_draft_has_the_weights_its_page_counts() -> None:
    tensors = expected_tensors(parse_config(BOLT), scalars=True)
    weights = {role: sum(prod(each.shape) for each in tensors if each.role == role) for role in Role}
    assert weights[Role.PROJECTION] == 327_680_000
    assert weights[Role.NORM] * 2 == 64_000
    assert weights[Role.FUSION] * 2 == 65_536_000
    assert sum(each.role == Role.PROJECTION for each in tensors) == 35
    assert sum(each.role == Role.NORM for each in tensors) == 22
    assert Expected("target_layer_ids", Role.SCALAR, (5,)) in tensors


def test_the_27b_draft_has_the_weights_its_card_counts() -> None:
    tensors = {each.name: each for each in expected_tensors(parse_config(QWEN38), scalars=False)}
    assert tensors["fc.weight"].shape == (5120, 25600)
    assert tensors["layers.4.mlp_conv.kernel_projection.weight"].shape == (1280, 5120)
    assert tensors["layers.0.attention_conv.base_kernel"].shape == (2, 2, 5120)
    assert tensors["candidate_selector.hidden_projection.weight"].shape == (256, 5120)
    assert tensors["candidate_selector.successor_codebook"].shape == (248320, 256)
    assert tensors["layers.0.mlp.down_proj.weight"].shape == (5120, 17408)
    # dflash.md 5.1: 1,924.3 M without norms, which are 5 x (2 x 5120 + 2 x 128) + 2 x 5120 = 62,720.
    total = 1_599_078_400 + 131_072_000 + 127_139_840 + 65_536_000 + 204_800 + 1_310_720
    norms = sum(prod(each.shape) for each in tensors.values() if each.role == Role.NORM)
    assert norms == 62_720
    assert sum(prod(each.shape) for each in tensors.values()) == total + norms


def test_the_muse_fixture_has_its_shapes() -> None:
    tensors = {each.name: each.shape for each in expected_tensors(parse_config(MUSE), scalars=False)}
    assert tensors["layers.0.attention_conv.base_kernel"] == (2, 2, 6656)
    assert tensors["layers.0.mlp_conv.kernel_projection.weight"] == (1664, 6656)
    assert tensors["candidate_selector.predecessor_codebook"] == (202048, 256)


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("scalar_prefix", ["", "dflash."])
def test_both_prefixes_are_accepted_and_recorded(prefix: str, scalar_prefix: str) -> None:
    present = all_names(FIRST, prefix=prefix)
    present += [scalar_prefix + each.name for each in expected_tensors(FIRST, scalars=True) if each.role == Role.SCALAR]
    matched = match(FIRST, present, container=True)
    assert matched.refusals("model.q4nx", 1) == []
    # Two layers: 2 x 11 + 3 tensors.
    assert matched.variants == (Variant("scalar prefix", scalar_prefix, 6), Variant("tensor prefix", prefix, 25))


CONTEXT = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
CODEBOOKS = [f"candidate_selector.{each}_codebook" for each in ("predecessor", "successor")]


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize(
    ("renamed", "variant"),
    [
        (CONTEXT.get, Variant("alias", "encoder.", 2)),
        # 11 tensors of a layer of generation 1, and 4 of its two convolutions.
        (lambda name: name.replace("layers.0.", "midlayer."), Variant("alias", "midlayer.", 15)),
        (lambda name: f"{name}.weight" if name in CODEBOOKS else name, Variant("alias", ".weight", 2)),
    ],
)
def test_aliases_are_accepted_and_recorded(renamed: Callable[[str], str | None], variant: Variant, prefix: str) -> None:
    present = [prefix + (renamed(name) or name) for name in all_names(SECOND)]
    matched = match(SECOND, present, container=False)
    assert matched.refusals("model.safetensors", 2) == []
    assert variant in matched.variants


MIXED = [
    ("layers.1.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight"),
    ("hidden_norm.weight", "hidden_norm.weight"),
    ("candidate_selector.hidden_projection.weight", "candidate_selector.hidden_projection.weight"),
    ("layers.0.self_attn.q_proj.weight", "model.midlayer.self_attn.q_proj.weight"),
]


@pytest.mark.parametrize(("name", "spelled"), MIXED)
def test_a_name_of_another_variant_than_the_others_is_refused(name: str, spelled: str) -> None:
    present = [spelled if each == name else f"model.{each}" for each in all_names(SECOND)]
    (refusal,) = match(SECOND, present, container=False).refusals("model.safetensors", 2)
    assert (refusal.code, refusal.where) == ("dflash.names_mixed", f"model.safetensors:{spelled}")
    assert refusal.measured == [spelled]


@pytest.mark.parametrize("half", [{"fc.weight": CONTEXT["fc.weight"]}, {CODEBOOKS[0]: f"{CODEBOOKS[0]}.weight"}])
def test_half_of_an_alias_is_refused(half: dict[str, str]) -> None:
    present = [half.get(each, each) for each in all_names(SECOND)]
    assert [each.code for each in match(SECOND, present, container=False).refusals("x", 2)] == ["dflash.names_mixed"]


def test_a_whole_layer_and_a_scalar_of_another_variant_are_two_findings() -> None:
    scalars = [each.name for each in expected_tensors(FIRST, scalars=True) if each.role == Role.SCALAR]
    present = [each if each.startswith("layers.1.") else f"model.{each}" for each in all_names(FIRST)]
    present += [each if each == "rope_theta" else f"dflash.{each}" for each in scalars]
    tensors, scalar = match(FIRST, present, container=True).refusals("model.q4nx", 1)
    assert tensors.measured == [each for each in all_names(FIRST) if each.startswith("layers.1.")]
    assert tensors.expected == "prefix: model., as 14 names have it"
    assert (scalar.where, scalar.expected) == (
        "model.q4nx:rope_theta",
        "prefix of scalars: dflash., as 5 names have it",
    )


def test_a_missing_tensor_is_named() -> None:
    present = [name for name in all_names(FIRST) if name != "layers.1.mlp.up_proj.weight"]
    (refusal,) = match(FIRST, present, container=False).refusals("model.safetensors", 1)
    assert (refusal.code, refusal.where) == (
        "dflash.tensor_missing",
        "model.safetensors:layers.1.mlp.up_proj.weight",
    )
    assert refusal.expected == [512, 256]


UNEXPLAINED = [
    ("layers.2.mlp.up_proj.weight", "No tensor of this draft"),
    ("layers.0.self_attn.q_proj.bias", "biases"),
    ("d2t", "vocabularies"),
    ("model.embed_tokens.weight", "embedding table"),
    ("lm_head.weight", "head of its own"),
    ("layers.0.self_attn.sinks", "sinks"),
    ("layers.0.attention_conv.base_kernel", "generation 2"),
    ("candidate_selector.successor_codebook", "generation 2"),
    ("blk.0.attn_q.weight", "No tensor of this draft"),
    ("model.model.fc.weight", "No tensor of this draft"),
    ("MIDLAYER.mlp.up_proj.weight", "No tensor of this draft"),
]


@pytest.mark.parametrize(("name", "sentence"), UNEXPLAINED)
def test_a_tensor_that_is_not_the_drafts_is_named_and_told_apart(name: str, sentence: str) -> None:
    (refusal,) = match(FIRST, [*all_names(FIRST), name], container=False).refusals("model.safetensors", 1)
    assert (refusal.code, refusal.measured) == ("dflash.tensor_unexplained", name)
    assert sentence in refusal.sentence


def test_scalars_are_no_part_of_an_upstream_checkpoint() -> None:
    present = [*all_names(FIRST), "dflash.block_size"]
    (refusal,) = match(FIRST, present, container=False).refusals("model.safetensors", 1)
    assert refusal.code == "dflash.tensor_unexplained"


def test_one_tensor_under_two_names_is_refused() -> None:
    present = [*all_names(FIRST), "model.fc.weight", "encoder.fc.weight"]
    (refusal,) = match(FIRST, present, container=False).refusals("model.safetensors", 1)
    assert refusal.code == "dflash.tensor_twice"
    assert refusal.measured == ["fc.weight", "model.fc.weight", "encoder.fc.weight"]


def test_generation_1_needs_its_scalars_and_generation_2_may_have_all_or_none() -> None:
    first = match(FIRST, all_names(FIRST), container=True).refusals("model.q4nx", 1)
    assert [refusal.code for refusal in first] == ["dflash.tensor_missing"] * 6
    assert match(SECOND, all_names(SECOND), container=True).refusals("model.q4nx", 2) == []
    assert match(SECOND, all_names(SECOND, scalars=True), container=True).refusals("model.q4nx", 2) == []
    some = match(SECOND, [*all_names(SECOND), "dflash.block_size"], container=True).refusals("model.q4nx", 2)
    assert [refusal.code for refusal in some] == ["dflash.tensor_missing"] * 5


def test_every_difference_is_listed() -> None:
    present = [*all_names(FIRST)[2:], "x", "y", "model.norm.weight", "model.norm.weight"]
    found = match(FIRST, present, container=False).refusals("model.safetensors", 1)
    assert [refusal.code for refusal in found] == [
        "dflash.tensor_missing",
        "dflash.tensor_missing",
        "dflash.tensor_unexplained",
        "dflash.tensor_unexplained",
        "dflash.tensor_twice",
    ]


def test_fc_has_one_hidden_size_of_columns_for_each_tap() -> None:
    config = replace(FIRST, target_layer_ids=(1, 3, 5, 9))
    assert expected_tensors(config, scalars=False)[0] == Expected("fc.weight", Role.FUSION, (256, 1024))
