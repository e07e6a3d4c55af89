"""Configs of published drafts mean what the reference pages say, wherever their keys stand."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from draftmill.dflash.config import DraftConfig, Second, parse_config, read_config
from draftmill.dflash.rope import Rope
from draftmill.outcome import Refused
from tests.dflash.published import BOLT, FULL, MUSE, QWEN3_8B, QWEN35_27B, QWEN36_27B, QWEN38, SLIDING


def codes(content: dict[str, Any], **told: Any) -> list[str]:
    with pytest.raises(Refused) as refused:
        parse_config(content, **told)
    return [refusal.code for refusal in refused.value.refusals]


def remarks(config: DraftConfig) -> list[str]:
    return [remark.code for remark in config.remarks]


ATTENTION: dict[str, Any] = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
EXPECTED = [
    (
        BOLT,
        DraftConfig(
            generation=1, vendor=False, hidden_size=2560, intermediate_size=5120, num_hidden_layers=5, **ATTENTION,
            vocab_size=262144, rms_norm_eps=1e-6, rope=Rope(1e6), layer_types=(SLIDING,) * 5, sliding_window=1024,
            causal=False, block_size=8, mask_token_id=4, target_layer_ids=(5, 11, 17, 23, 35), num_target_layers=42,
            max_position_embeddings=131072,
        ),
    ),
    (
        QWEN38,
        DraftConfig(
            generation=2, vendor=False, hidden_size=5120, intermediate_size=17408, num_hidden_layers=5, **ATTENTION,
            vocab_size=248320, rms_norm_eps=1e-6, rope=Rope(1e7), layer_types=(SLIDING,) * 5, sliding_window=2048,
            causal=False, block_size=8, mask_token_id=248070, target_layer_ids=(5, 19, 33, 47, 61),
            num_target_layers=64, second=Second(2, 16, 256, 16),
        ),
    ),
    (
        MUSE,
        DraftConfig(
            generation=2, vendor=False, hidden_size=6656, intermediate_size=19968, num_hidden_layers=5, **ATTENTION,
            vocab_size=202048, rms_norm_eps=1e-5, rope=Rope(5e5), layer_types=(SLIDING,) * 5, sliding_window=2048,
            causal=False, block_size=16, mask_token_id=201818, target_layer_ids=(1, 13, 25, 37, 49),
            num_target_layers=52, second=Second(2, 16, 256, 16), final_logit_softcapping=20.0,
            output_multiplier=0.19611613513818404,
        ),
    ),
    (
        QWEN3_8B,
        DraftConfig(
            generation=1, vendor=False, hidden_size=4096, intermediate_size=12288, num_hidden_layers=5, **ATTENTION,
            vocab_size=151936, rms_norm_eps=1e-6, rope=Rope(1e6), layer_types=(FULL,) * 5, sliding_window=None,
            causal=False, block_size=16, mask_token_id=151669, target_layer_ids=(1, 9, 17, 25, 33),
            num_target_layers=36,
        ),
    ),
    (
        QWEN36_27B,
        DraftConfig(
            generation=1, vendor=False, hidden_size=5120, intermediate_size=17408, num_hidden_layers=5, **ATTENTION,
            vocab_size=248320, rms_norm_eps=1e-6, rope=Rope(1e7), layer_types=(SLIDING,) * 4 + (FULL,),
            sliding_window=2048, causal=False, block_size=16, mask_token_id=248070,
            target_layer_ids=(1, 16, 31, 46, 61), num_target_layers=64,
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), EXPECTED, ids=["Bolt", "Qwen3.8", "Muse", "Qwen3-8B", "Qwen3.6"])
def test_a_published_config_means_what_its_page_says(content: dict[str, Any], expected: DraftConfig) -> None:
    config = parse_config(content)
    assert config == expected
    assert config.unknown == ()
    assert remarks(config) == ["dflash.layer_ids_known"]


def test_each_value_says_where_it_stands() -> None:
    places = parse_config(BOLT).places
    assert places["block_size"] == ("block_size",)
    assert places["mask_token_id"] == ("dflash_config.mask_token_id",)
    assert places["sliding_window"] == ("sliding_window", "dflash_config.swa_window_size")
    assert places["causal"] == ("dflash_config.causal",)
    assert places["input_embedding_scale"] == ("(default)",)
    assert parse_config(QWEN38).places["rope_theta"] == ("rope_parameters.rope_theta",)
    assert parse_config(QWEN38).stated("block_size")
    assert not parse_config(QWEN38).stated("output_multiplier")


def moved(
    content: dict[str, Any], keys: list[str], section: str, names: dict[str, str] | None = None
) -> dict[str, Any]:
    """The config with keys of the top or of dflash_config moved to another section, under other names where given."""
    content = copy.deepcopy(content)
    for key in keys:
        source = content if key in content else content["dflash_config"]
        value = source.pop(key)
        name = (names or {}).get(key, key)
        if section.endswith("."):
            content[section + name] = value
        elif section:
            content.setdefault(section, {})[name] = value
        else:
            content[name] = value
    return content


MOVES = [
    (["block_size"], "dflash_config", None),
    (["block_size", "mask_token_id", "target_layer_ids"], "dflash", None),
    (["block_size", "mask_token_id", "target_layer_ids", "rope_theta", "rms_norm_eps"], "dflash.", None),
    (["mask_token_id", "target_layer_ids"], "", None),
    (["rope_theta"], "rope_parameters", None),
    (["rms_norm_eps"], "dflash", {"rms_norm_eps": "rms_eps"}),
    (["rms_norm_eps"], "", {"rms_norm_eps": "rms_eps"}),
    (["causal"], "", {"causal": "is_causal"}),
    (["sliding_window", "layer_types"], "dflash_config", None),
]


@pytest.mark.parametrize(("keys", "section", "names"), MOVES)
def test_a_key_means_the_same_in_each_documented_place(keys: list[str], section: str, names: Any) -> None:
    content = moved(BOLT, keys, section, names)
    assert content != BOLT
    assert parse_config(content) == parse_config(BOLT)


def test_the_embedding_scale_has_a_name_of_the_container_too() -> None:
    assert parse_config(BOLT | {"embedding_scale": 50.5}).input_embedding_scale == 50.5


@pytest.mark.parametrize("content", [BOLT, QWEN38])
def test_null_is_a_key_that_is_not_stated(content: dict[str, Any]) -> None:
    assert parse_config(content | {"rope_scaling": None, "is_neox_style": None, "d2t": None}) == parse_config(content)
    assert codes(content | {"head_dim": None}) == ["dflash.key_missing"]


CONFLICTS = [
    (BOLT, ("dflash_config", "block_size"), 16),
    (BOLT, ("dflash_config", "swa_window_size"), 2048),
    (BOLT, ("is_causal",), True),
    (BOLT, ("rms_eps",), 1e-5),
    (BOLT, ("rope_parameters",), {"rope_theta": 1e4}),
    (BOLT, ("dflash.target_layer_ids",), [6, 12, 18, 24, 36]),
    (BOLT, ("dflash",), {"mask_token_id": 5}),
    (QWEN38, ("conv_kernel_size",), 3),
    (QWEN38, ("dflash_config", "is_causal"), True),
    (QWEN38, ("rope_scaling",), {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}),
]


@pytest.mark.parametrize(("content", "place", "value"), CONFLICTS)
def test_two_places_that_disagree_are_refused_and_both_named(
    content: dict[str, Any], place: tuple[str, ...], value: Any
) -> None:
    content = copy.deepcopy(content)
    node = content
    for part in place[:-1]:
        node = node[part]
    node[place[-1]] = value
    with pytest.raises(Refused) as refused:
        parse_config(content)
    (refusal,) = refused.value.refusals
    assert refusal.code == "dflash.conflict"
    assert " and " in refusal.sentence


@pytest.mark.parametrize("section", [{"block_size": 8}, {"block_size": 9}])
def test_a_dotted_key_and_an_object_are_one_place(section: dict[str, Any]) -> None:
    content = {key: value for key, value in BOLT.items() if key != "block_size"}
    content |= {"dflash": section, "dflash.block_size": 8}
    if section["block_size"] == 8:
        assert parse_config(content) == parse_config(BOLT)
    else:
        assert codes(content) == ["dflash.conflict"]


SIZES = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"]
SIZES += ["head_dim", "vocab_size"]
NEEDED = [(BOLT, (key,)) for key in [*SIZES, "rms_norm_eps", "rope_theta", "block_size"]] + [
    (BOLT, ("dflash_config", "mask_token_id")),
    (BOLT, ("dflash_config", "target_layer_ids")),
    (QWEN36_27B, ("sliding_window",)),
    (QWEN38, ("dflash_config", "conv_kernel_size")),
    (QWEN38, ("dflash_config", "conv_group_size")),
    (QWEN38, ("dflash_config", "selector_rank")),
    (QWEN38, ("dflash_config", "selector_top_k")),
]


@pytest.mark.parametrize(("content", "place"), NEEDED, ids=[place[-1] for _, place in NEEDED])
def test_a_key_that_changes_the_result_has_no_default(content: dict[str, Any], place: tuple[str, ...]) -> None:
    content = copy.deepcopy(content)
    node = content
    for part in place[:-1]:
        node = node[part]
    del node[place[-1]]
    with pytest.raises(Refused) as refused:
        parse_config(content)
    (refusal,) = refused.value.refusals
    assert (refusal.code, refusal.where) == ("dflash.key_missing", f"config.json:{place[-1]}")


def test_missing_taps_are_refused_with_what_the_formula_would_give() -> None:
    content = copy.deepcopy(QWEN38)
    del content["dflash_config"]["target_layer_ids"]
    with pytest.raises(Refused) as refused:
        parse_config(content)
    # z-lab #156: the formula's ids for this draft, which is trained with 5, 19, 33, 47, 61.
    assert "[1, 16, 31, 46, 61]" in refused.value.refusals[0].sentence
    assert "14 of 20" in refused.value.refusals[0].sentence


def test_all_findings_come_at_once() -> None:
    assert codes(BOLT | {"block_size": None, "rope_theta": -1, "head_dim": 127, "mlp_bias": True}) == [
        "dflash.value_invalid",
        "dflash.key_missing",
        "dflash.unsupported_key",
        "dflash.head_dim_odd",
    ]


SINGLE = [
    (BOLT, {"architectures": ["Qwen3ForCausalLM"]}, "architecture_unknown"),
    (BOLT, {"architectures": ["DFlashDraftModel", "DFlash2DraftModel"]}, "architecture_unknown"),
    (BOLT, {"architectures": None}, "architecture_missing"),
    (BOLT, {"selector_rank": 256}, "generation_contradicted"),
    (BOLT, {"dflash": [1]}, "section_not_object"),
    (BOLT, {"num_key_value_heads": 5}, "heads_indivisible"),
    (BOLT, {"head_dim": 127}, "head_dim_odd"),
    (BOLT, {"vocab_size": 4}, "mask_outside_vocabulary"),
    (QWEN38, {"hidden_size": 5121}, "group_indivisible"),
    (BOLT, {"hidden_act": "gelu"}, "unsupported_key"),
    (BOLT, {"has_own_lm_head": True}, "unsupported_key"),
    (BOLT, {"draft_vocab_size": 32000}, "unsupported_key"),
    (BOLT, {"d2t": "d2t.npy"}, "unsupported_key"),
    (BOLT, {"attention_bias": True}, "unsupported_key"),
    (BOLT, {"partial_rotary_factor": 0.25}, "unsupported_key"),
    (QWEN38, {"rope_parameters": QWEN38["rope_parameters"] | {"partial_rotary_factor": 0.25}}, "unsupported_key"),
    (BOLT, {"rope_scaling": {"mrope_section": [16, 24, 24]}}, "unsupported_key"),
    (BOLT, {"is_neox_style": False}, "unsupported_key"),
    (BOLT, {"target_layers": [6, 12, 18, 24, 36]}, "unsupported_key"),
    (BOLT, {"quantization_config": {"bits": 4}}, "unsupported_key"),
    (BOLT, {"rope_scaling": {"rope_type": "llama3"}}, "rope_type_unknown"),
    (BOLT, {"rope_scaling": {"rope_type": ["yarn"]}}, "rope_type_unknown"),
    (BOLT, {"rope_scaling": {"rope_type": "default", "factor": 2.0}}, "rope_key_unknown"),
    (BOLT, {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_key_missing"),
    (
        BOLT,
        {"rope_scaling": {"type": "yarn", "factor": "2", "original_max_position_embeddings": 8}},
        "rope_key_invalid",
    ),
    (QWEN38, {"rope_parameters": QWEN38["rope_parameters"] | {"full_attention": {}}}, "rope_per_layer_type"),
    (BOLT, {"layer_types": [SLIDING] * 4}, "layer_types_length"),
    (BOLT, {"layer_types": None}, "layer_types_missing"),
    (BOLT, {"layer_types": [FULL] * 5}, "window_contradicted"),
    (BOLT, {"use_sliding_window": False, "dflash_config": BOLT["dflash_config"] | {"use_swa": None}},
     "window_contradicted"),
    (QWEN36_27B, {"sliding_window": 0}, "window_contradicted"),
    (BOLT, {"dflash_config": BOLT["dflash_config"] | {"causal": None}}, "causality_not_stated"),
    (BOLT, {"weight_file": "../model.q4nx"}, "weight_path"),
    (BOLT, {"weights": "/etc/passwd"}, "weight_path"),
    (BOLT, {"dflash": {"model": "a\\b.q4nx"}}, "weight_path"),
    (BOLT, {"files": {"draft": ["x/../../y.q4nx"]}}, "weight_path"),
    (BOLT, {"weight_file": "a.q4nx", "model": "b.q4nx"}, "conflict"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "change", "code"), SINGLE, ids=[f"{c}-{i}" for i, (_, _, c) in enumerate(SINGLE)])
def test_what_is_wrong_is_refused_by_its_own_code_alone(
    content: dict[str, Any], change: dict[str, Any], code: str
) -> None:
    parse_config(content)
    assert codes(content | change) == [f"dflash.{code}"]


INVALID: list[tuple[str, list[Any]]] = [
    ("hidden_size", [0, -1, 2.5, "2560", True, 1 << 70]),
    ("rms_norm_eps", [0, -1e-6, "1e-6", True, 1e400]),
    ("rope_theta", [0, [1e6], 10**400]),
    ("block_size", [1, 8.0, "8"]),
    ("mask_token_id", [-1, 4.0, True]),
    ("target_layer_ids", [[], [1.0], [True], "5", {"a": 1}, 5]),
    ("layer_types", [["sliding"], [], "full_attention"]),
    ("sliding_window", [-1, 2048.5]),
    ("is_causal", [0, "false"]),
]


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in INVALID for value in values])
def test_a_value_of_another_kind_is_refused_not_converted(key: str, value: Any) -> None:
    content = {k: v for k, v in QWEN38.items() if k not in (key, "dflash_config", "rope_parameters")}
    content |= {k: v for k, v in QWEN38["dflash_config"].items() if k != key}
    content |= {"rope_theta": 1e7} | {key: value}
    assert codes(content) == ["dflash.value_invalid"]
    json.dumps([refusal.as_json() for refusal in refusals_of(content)], allow_nan=False)


def refusals_of(content: dict[str, Any]) -> Any:
    with pytest.raises(Refused) as refused:
        parse_config(content)
    return refused.value.refusals


def test_keys_that_say_the_ordinary_thing_are_no_reason_to_refuse() -> None:
    ordinary = {
        "has_own_lm_head": False, "draft_vocab_size": 262144, "target_hidden_size": 2560, "sample_from_anchor": False,
        "partial_rotary_factor": 1.0, "is_neox_style": True, "mlp_bias": False,
        "rope_scaling": {"rope_type": "default"},
        "_name_or_path": "/training/draft/model.safetensors",
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "dtype": "bfloat16",
    }  # fmt: skip
    config = parse_config(BOLT | ordinary)
    assert config == parse_config(BOLT)
    assert config.unknown == ()


def test_keys_nobody_knows_are_recorded_by_their_place() -> None:
    config = parse_config(BOLT | {"mystery": 1, "dflash": {"depth": 2}})
    assert config.unknown == ("mystery", "dflash.depth")


def test_yarn_is_represented_as_stated() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "beta_fast": 32}
    rope = parse_config(BOLT | {"rope_scaling": scaling}).rope
    assert rope == Rope(1e6, "yarn", {"factor": 4.0, "original_max_position_embeddings": 32768, "beta_fast": 32})


VENDOR = BOLT | {"model_type": "dflash"}


def test_a_vendor_package_that_does_not_state_causality_is_not_causal_with_a_remark() -> None:
    silent = VENDOR | {"dflash_config": BOLT["dflash_config"] | {"causal": None}}
    config = parse_config(silent)
    assert not config.causal
    assert "dflash.causality_by_loader" in remarks(config)
    assert parse_config(silent, causal=True).causal
    assert "dflash.causality_by_loader" not in remarks(parse_config(VENDOR))


def test_an_upstream_draft_with_sliding_layers_has_to_be_told() -> None:
    assert codes(QWEN35_27B) == ["dflash.causality_not_stated"]
    assert parse_config(QWEN35_27B, causal=True).causal
    config = parse_config(QWEN35_27B, causal=False)
    assert not config.causal
    assert config.places["causal"] == ("(told)",)
    assert (config.layer_types, config.sliding_window, config.block_size) == ((SLIDING,) * 5 + (FULL,), 4096, 16)


def test_what_is_told_may_not_contradict_the_config() -> None:
    assert codes(QWEN38, causal=True) == ["dflash.causality_contradicted"]
    assert not parse_config(QWEN38, causal=False).causal


def test_full_layers_alone_are_never_causal_by_default() -> None:
    config = parse_config(QWEN3_8B)
    assert (config.causal, config.places["causal"]) == (False, ("(default)",))


def test_a_vendor_package_without_kinds_of_layers_slides_everywhere() -> None:
    config = parse_config(VENDOR | {"layer_types": None})
    assert config.layer_types == (SLIDING,) * 5
    assert "dflash.layer_types_from_window" in remarks(config)
    assert codes(VENDOR | {"layer_types": None, "sliding_window_pattern": 6}) == ["dflash.layer_types_missing"]


def test_without_a_window_and_kinds_of_layers_all_are_full() -> None:
    config = parse_config(QWEN3_8B | {"layer_types": None})
    assert (config.layer_types, config.places["layer_types"]) == ((FULL,) * 5, ("(derived)",))


def test_a_vendor_package_may_leave_its_architecture_to_its_keys() -> None:
    for content, generation in ((VENDOR, 1), (QWEN38 | {"model_type": "dflash"}, 2)):
        config = parse_config(content | {"architectures": None})
        assert config.generation == generation
        assert "dflash.generation_from_keys" in remarks(config)


def test_a_vendor_package_that_says_it_has_a_head_gets_a_remark() -> None:
    assert "dflash.own_head_stated" in remarks(parse_config(VENDOR | {"has_own_lm_head": True}))


def test_an_empty_weight_path_and_a_file_that_is_no_container_are_called_that() -> None:
    (refusal,) = refusals_of(BOLT | {"weight_file": ""})
    assert "path is empty" in refusal.sentence
    config = parse_config(BOLT | {"weight_file": "model.safetensors"})
    assert (config.weight_file, config.unknown) == (None, ("weight_file",))


@pytest.mark.parametrize(
    "address", ["https://host/x.q4nx", "http:/host/x.q4nx", "s3://bucket/x.q4nx", "//host/x.q4nx", "file:///x.q4nx"]
)
def test_a_weight_file_on_a_network_is_called_that(address: str) -> None:
    (refusal,) = refusals_of(BOLT | {"weight_file": address})
    assert refusal.code == "dflash.weight_path"
    assert "an address on a network" in refusal.sentence
    assert "empty part" not in refusal.sentence


@pytest.mark.parametrize("key", ["weight_file", "model", "vision_model_weight"])
def test_a_weight_file_inside_the_package_is_read_as_such(key: str) -> None:
    expected = None if key == "vision_model_weight" else "parts/draft.q4nx"
    assert parse_config(BOLT | {key: "parts/draft.q4nx"}).weight_file == expected


def test_the_real_small_draft_reads(smollm2_dflash: Path) -> None:
    config = read_config(smollm2_dflash)
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (576, 9, 3)
    assert (config.target_layer_ids, config.mask_token_id, config.causal) == ((5, 14, 24), 16, False)
    assert config.unknown == ()


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    for make in (lambda: None, (tmp_path / "config.json").mkdir):
        make()
        with pytest.raises(Refused) as refused:
            read_config(tmp_path)
        assert refused.value.code == "dflash.config_missing"
