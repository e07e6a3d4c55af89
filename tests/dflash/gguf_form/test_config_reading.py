"""What a GGUF draft's keys have to say: each that is missing or wrong is refused at its own name."""

from dataclasses import replace
from typing import Any

import pytest
from gguf.constants import GGUFValueType

from draftmill.dflash.config_kinds import FULL, SLIDING
from draftmill.dflash.gguf_form import keys
from draftmill.dflash.gguf_form.config_reading import read_gguf_config
from draftmill.dflash.rope import Rope
from draftmill.dflash.synthetic import synthetic_config
from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.outcome import Refused
from tests.dflash.gguf_form.small import SECOND_SIZES, write_draft
from tests.gguf.convert_models import TINY_VOCAB

_FORMS = {
    bool: GGUFValueType.BOOL,
    int: GGUFValueType.UINT32,
    float: GGUFValueType.FLOAT32,
    str: GGUFValueType.STRING,
    list: GGUFValueType.ARRAY,
}


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, GGUFHeader]:
    """Generation -> header of a draft of it, as written here."""
    folder = tmp_path_factory.mktemp("drafts")
    return {
        1: read_header(write_draft(folder / "one")),
        2: read_header(write_draft(folder / "two", 2, **SECOND_SIZES)),
    }


def edited(header: GGUFHeader, changes: dict[str, Any]) -> GGUFHeader:
    """With keys added, or taken away for a None."""
    fields = {name: value for name, value in (header.fields | changes).items() if value is not None}
    types = header.types | {name: (_FORMS[type(value)],) for name, value in changes.items() if value is not None}
    return replace(header, fields=fields, types=types)


def refused(header: GGUFHeader, changes: dict[str, Any], **told: bool) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as error:
        read_gguf_config(edited(header, changes), "d.gguf", **told)
    return [(each.code, each.where) for each in error.value.refusals]


def test_a_draft_of_generation_1_says_what_its_checkpoint_said(headers) -> None:
    # Written out: 12 target layers, taps of outputs 1, 5 and 9 (in the file 2, 6 and 10), 1e-6 and 1e6 as said.
    config = read_gguf_config(headers[1], "d.gguf")
    assert config == replace(synthetic_config(1, vocab_size=TINY_VOCAB), vendor=False)
    assert headers[1].fields["dflash.target_layers"] == [2, 6, 10]
    assert config.rms_norm_eps == 1e-6 != headers[1].fields["dflash.attention.layer_norm_rms_epsilon"]


def test_a_draft_of_generation_2_says_what_its_checkpoint_said(headers) -> None:
    assert read_gguf_config(headers[2], "d.gguf") == replace(
        synthetic_config(2, vocab_size=TINY_VOCAB, **SECOND_SIZES), vendor=False
    )


@pytest.mark.parametrize(
    "key", [*(each.key for each in keys.REQUIRED), keys.TARGET_LAYERS, keys.TOKENS], ids=lambda key: key
)
def test_every_key_that_decides_the_draft_is_needed(headers, key) -> None:
    assert refused(headers[1], {key: None}) == [("dflash.gguf_key_missing", f"d.gguf:{key}")]


@pytest.mark.parametrize("key", [each.key for each in keys.SECOND], ids=lambda key: key)
def test_every_key_of_generation_2_is_needed(headers, key) -> None:
    assert refused(headers[2], {key: None}) == [("dflash.gguf_key_missing", f"d.gguf:{key}")]


def test_a_selector_without_any_key_of_it_is_no_draft_of_generation_1(headers) -> None:
    gone = {each.key: None for each in keys.SECOND}
    assert refused(headers[2], gone) == [("dflash.gguf_key_missing", f"d.gguf:{each.key}") for each in keys.SECOND]


_SLIDING = "attention.sliding_window"


@pytest.mark.parametrize(
    ("changes", "code", "key"),
    [
        pytest.param({"block_size": 8.0}, "gguf_value_form", "block_size", id="a real where a whole number belongs"),
        pytest.param({"block_count": True}, "gguf_value_form", "block_count", id="a flag where a number belongs"),
        pytest.param({"rope.freq_base": "1e6"}, "gguf_value_form", "rope.freq_base", id="text"),
        pytest.param({"attention.causal": 0}, "gguf_value_form", "attention.causal", id="a number as a flag"),
        pytest.param({"target_layers": [2.0]}, "gguf_value_form", "target_layers", id="real layer ids"),
        pytest.param({"block_size": 1}, "value_invalid", "block_size", id="a block without a mask"),
        pytest.param({"attention.key_length": 63, "attention.value_length": 63}, "head_dim_odd", "attention.key_length",
                     id="an odd head"),
        pytest.param({"attention.head_count_kv": 3}, "heads_indivisible", "attention.head_count_kv", id="heads"),
        pytest.param({"target_layers": [0, 6, 10]}, "layer_ids_range", "target_layers",
                     id="ids of outputs counted from 0, not L+1"),
        pytest.param({"target_layers": [2, 2, 10]}, "layer_ids_repeated", "target_layers", id="a layer twice"),
        pytest.param({f"{_SLIDING}_pattern": None}, "gguf_window", f"{_SLIDING}_pattern", id="no pattern"),
        pytest.param({_SLIDING: None}, "gguf_window", _SLIDING, id="a pattern without its window"),
        pytest.param({f"{_SLIDING}_pattern": [True]}, "gguf_window", f"{_SLIDING}_pattern", id="a short pattern"),
        pytest.param({f"{_SLIDING}_pattern": 2}, "gguf_window", f"{_SLIDING}_pattern", id="a pattern as a period"),
        pytest.param({_SLIDING: 0}, "window_contradicted", _SLIDING, id="a window of nothing"),
        pytest.param({"attention.causal": None}, "causality_not_stated", "attention.causal", id="no causality"),
        pytest.param({"attention.causal": True, f"{_SLIDING}_pattern": [True, False]}, "gguf_causal_full_layers",
                     "attention.causal", id="causal with a full layer"),
        pytest.param({"rope.scaling.type": "linear"}, "rope_type_unknown", "rope.scaling.type", id="linear scaling"),
        pytest.param({"rope.scaling.factor": 4.0}, "gguf_rope_scaling", "rope.scaling.type", id="a factor of no kind"),
        pytest.param({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "rope_key_missing",
                     "rope.scaling.original_context_length", id="yarn without its first length"),
        pytest.param({"sample_from_anchor": True}, "gguf_value_unsupported", "sample_from_anchor", id="the anchor"),
        pytest.param({"has_confidence_head": True}, "gguf_value_unsupported", "has_confidence_head", id="DSpark"),
        pytest.param({"attention.value_scale": 0.5}, "gguf_value_unsupported", "attention.value_scale", id="a scale"),
        pytest.param({"attention.value_length": 32}, "gguf_value_unsupported", "attention.value_length", id="values"),
        pytest.param({"rope.dimension_count": 32}, "gguf_value_unsupported", "rope.dimension_count", id="half rotated"),
        pytest.param({"rope.dimension_sections": [11, 11, 10, 0]}, "gguf_value_unsupported", "rope.dimension_sections",
                     id="the target's axes"),
        pytest.param({"vocab_size": 299}, "gguf_value_unsupported", "vocab_size", id="another vocabulary"),
        pytest.param({"hidden_act": "gelu"}, "gguf_value_unsupported", "hidden_act", id="another gate"),
        pytest.param({"hyper_connection.count": 4}, "gguf_key_unknown", "hyper_connection.count", id="an unknown key"),
        pytest.param({"rope.scaling.yarn_ext_factor": 0.5}, "gguf_key_unknown", "rope.scaling.yarn_ext_factor",
                     id="yarn's mix"),
    ],
)  # fmt: skip
def test_what_changes_the_draft_is_refused_by_name(headers, changes, code, key) -> None:
    changes = {f"dflash.{name}": value for name, value in changes.items()}
    assert refused(headers[1], changes) == [(f"dflash.{code}", f"d.gguf:dflash.{key}")]


def test_a_mask_outside_the_vocabulary_is_refused(headers) -> None:
    at = "tokenizer.ggml.mask_token_id"
    assert refused(headers[1], {at: TINY_VOCAB}) == [("dflash.mask_outside_vocabulary", f"d.gguf:{at}")]


def test_another_architecture_is_refused_first(headers) -> None:
    at = "general.architecture"
    assert refused(headers[1], {at: "qwen3", keys.TOKENS: None}) == [("dflash.gguf_architecture", f"d.gguf:{at}")]


def test_all_that_is_wrong_is_told_at_once(headers) -> None:
    found = refused(headers[1], {"dflash.block_size": None, "dflash.rope.freq_base": None, "dflash.x": 1})
    assert [code for code, _ in found] == ["dflash.gguf_key_missing"] * 2 + ["dflash.gguf_key_unknown"]


@pytest.mark.parametrize(
    "changes",
    [
        {"sample_from_anchor": False},
        {"attention.value_scale": 1.0},
        {"rope.dimension_count": 64},
        {"rope.dimension_sections": [32, 0, 0, 0]},
        {"vocab_size": TINY_VOCAB},
        {"hidden_act": "silu"},
        {"rope.scaling.type": "none"},
        {"logit_scale": 1.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_ordinary_thing_said_aloud_is_taken(headers, changes) -> None:
    changes = {f"dflash.{name}": value for name, value in changes.items()}
    assert read_gguf_config(edited(headers[1], changes), "d.gguf") == read_gguf_config(headers[1], "d.gguf")


def test_causality_may_be_told_and_not_contradicted(headers) -> None:
    unstated = edited(headers[1], {keys.CAUSAL: None})
    assert read_gguf_config(unstated, "d.gguf", causal=True).causal
    assert not read_gguf_config(unstated, "d.gguf", causal=False).causal
    found = refused(headers[1], {}, causal=True)
    assert found == [("dflash.causality_contradicted", f"d.gguf:{keys.CAUSAL}")]


def test_full_layers_alone_need_no_causality(headers) -> None:
    """llama.cpp takes non-causal where the key is absent, as everybody does for full layers."""
    gone = {keys.CAUSAL: None, keys.SLIDING_WINDOW: None, keys.SLIDING_PATTERN: None}
    config = read_gguf_config(edited(headers[1], gone), "d.gguf")
    assert (config.layer_types, config.sliding_window, config.causal) == ((FULL, FULL), None, False)


def test_kinds_of_layers_and_yarn_are_read(headers) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 1024, "yarn_beta_fast": 16.0}
    changes = {f"dflash.rope.scaling.{name}": value for name, value in yarn.items()}
    config = read_gguf_config(edited(headers[1], changes | {keys.SLIDING_PATTERN: [False, True]}), "d.gguf")
    assert config.layer_types == (FULL, SLIDING)
    scaling = {"factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16.0}
    assert config.rope == Rope(1e6, "yarn", scaling)


def test_without_the_mills_own_key_the_targets_depth_is_not_known_and_said(headers) -> None:
    config = read_gguf_config(edited(headers[1], {keys.NUM_TARGET_LAYERS: None}), "d.gguf")
    assert config.num_target_layers is None
    assert [(each.code, each.where) for each in config.remarks] == [("dflash.target_depth_unknown", keys.TARGET_LAYERS)]
