"""A config that is refused in part: everything that does not need that part is checked, and what needs it is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_ledger import NOT_REACHED
from draftmill.dflash.gate_result import Gate, Outcome, Verdict
from draftmill.dflash.gate_table import CHECKS, OF_CONTAINER
from draftmill.q4nx.writing import Stored
from tests.support.dflash_packages import SMALLEST, edit_config, edit_container, tiny

Content = dict[str, Any]
NAN = [0xC0, 0x7F]
UP, Q, DOWN = (f"model.layers.0.{part}_proj.weight" for part in ("mlp.up", "self_attn.q", "mlp.down"))


def by(result: Gate, outcome: Outcome) -> set[str]:
    return {check.id for check in result.of(outcome)}


def evidence(result: Gate, name: str) -> str:
    return next(check.evidence for check in result.checks if check.id == name)


def spoil(tensors: dict[str, Stored]) -> None:
    """Four faults of four checks."""
    bytes_of(tensors[Q])[:2] = NAN
    bytes_of(tensors["model.fc.weight"])[:2] = NAN
    bytes_of(tensors["model.norm.weight"])[:2] = NAN
    tensors["model.extra"] = tensors["model.norm.weight"]


def bytes_of(tensor: Stored) -> Any:
    return tensor.data


FAULTS = {"scales.finite", "fusion.finite", "norms.finite", "tensors.explained"}


def package(folder: Path, change: Callable[[Content], Any], spoiled: bool = True) -> Gate:
    """The gate's result on a package of generation 1 whose config is changed in place."""
    tiny(folder, 1)
    if spoiled:
        edit_container(folder, spoil)

    def changed(content: Content) -> Content:
        change(content)
        return content

    edit_config(folder, changed)
    return gate(folder)


def without(key: str) -> Callable[[Content], Any]:
    return lambda content: content.pop(key, None) or content["dflash_config"].pop(key)


def stating(**changes: Any) -> Callable[[Content], Any]:
    return lambda content: content.update(changes)


def drafting(**changes: Any) -> Callable[[Content], Any]:
    return lambda content: content["dflash_config"].update(changes)


def windows(size: int | None) -> Callable[[Content], Any]:
    def change(content: Content) -> None:
        content["sliding_window"] = content["dflash_config"]["swa_window_size"] = size

    return change


TWICE = "has two values"
SHAPELESS: dict[str, tuple[Callable[[Content], Any], str, dict[str, str]]] = {
    # what: (change, the check that refuses it, check that cannot be run -> part of the reason)
    "no rope_theta": (
        without("rope_theta"),
        "config.keys",
        {"config.rope": "rope_theta is not stated", "scalars.rope_theta": "rope_theta is not stated"},
    ),
    "rope_theta is text": (
        stating(rope_theta="1e6"),
        "config.keys",
        {
            "config.rope": "rope_theta has an impossible value",
            "scalars.rope_theta": "rope_theta has an impossible value",
        },
    ),
    "two rope_thetas": (
        stating(rope_parameters={"rope_theta": 1e4}),
        "config.places",
        {"config.rope": f"rope_theta {TWICE}", "scalars.rope_theta": f"rope_theta {TWICE}"},
    ),
    "an unknown rotary type": (stating(rope_scaling={"rope_type": "spiral"}), "config.rope", {}),
    "two rotary types": (
        stating(rope_scaling={"rope_type": "default", "type": "yarn"}),
        "config.places",
        {"config.rope": f"the rotary type {TWICE}"},
    ),
    "no rms_norm_eps": (without("rms_norm_eps"), "config.keys", {"scalars.rms_eps": "rms_norm_eps is not stated"}),
    "two epsilons": (stating(rms_eps=1e-5), "config.places", {"scalars.rms_eps": f"rms_norm_eps {TWICE}"}),
    "no block_size": (without("block_size"), "config.keys", {"scalars.block_size": "block_size is not stated"}),
    "a block of one": (
        stating(block_size=1),
        "config.keys",
        {"scalars.block_size": "block_size has an impossible value"},
    ),
    "two block sizes": (drafting(block_size=16), "config.places", {"scalars.block_size": f"block_size {TWICE}"}),
    "a key and an object that differ": (
        lambda content: (
            content.update({"dflash.block_size": 9, "dflash": {"block_size": 8}}) or content.pop("block_size")
        ),
        "config.places",
        {"scalars.block_size": f"block_size {TWICE}"},
    ),
    "no mask_token_id": (without("mask_token_id"), "config.keys", {"config.mask": "mask_token_id is not stated"}),
    "two mask ids": (stating(mask_token_id=5), "config.places", {"config.mask": f"mask_token_id {TWICE}"}),
    "no vocab_size": (without("vocab_size"), "config.keys", {"config.mask": "vocab_size is not stated"}),
    "no window": (
        windows(None),
        "config.keys",
        {
            "config.visibility": "sliding_window is not stated",
            "scalars.sliding_window": "sliding_window is not stated",
        },
    ),
    "a window of zero": (
        windows(0),
        "config.visibility",
        {"scalars.sliding_window": "sliding_window is 0 and layers slide"},
    ),
    "two windows": (
        drafting(swa_window_size=32),
        "config.places",
        {"config.visibility": f"sliding_window {TWICE}", "scalars.sliding_window": f"sliding_window {TWICE}"},
    ),
    "kinds of another number of layers": (
        stating(layer_types=["sliding_attention"] * 3),
        "config.visibility",
        {"scalars.sliding_window": "which layers slide is not known"},
    ),
    "causality is text": (
        stating(is_causal="no"),
        "config.keys",
        {"config.visibility": "is_causal has an impossible value"},
    ),
    "num_target_layers is text": (
        stating(num_target_layers="12"),
        "config.keys",
        {
            "config.layer_ids": "num_target_layers has an impossible value",
            "config.layer_ids_base": "num_target_layers has an impossible value",
        },
    ),
    "an embedding scale of zero": (
        stating(input_embedding_scale=0),
        "config.keys",
        {"scalars.embedding_scale": "input_embedding_scale has an impossible value"},
    ),
    "a negative softcap": (stating(final_logit_softcapping=-1), "config.keys", {}),
    "biases": (stating(attention_bias=True), "config.extensions", {}),
    "a key of generation 2": (stating(selector_rank=256), "config.architecture", {}),
    "a section that is a list": (stating(rope_scaling=[1]), "config.keys", {}),
}


@pytest.mark.parametrize("what", SHAPELESS)
def test_a_bad_value_that_shapes_no_tensor_stops_only_the_checks_that_need_it(what: str, tmp_path: Path) -> None:
    change, refusing, stopped = SHAPELESS[what]
    result = package(tmp_path / "p", change)
    assert result.verdict == Verdict.REFUSED
    assert by(result, Outcome.REFUSED) == FAULTS | {refusing}
    assert {name: evidence(result, name) for name in by(result, Outcome.NOT_RUN)} == {
        name: f"not run, because {why}" for name, why in stopped.items()
    }


PACKED = {"packed.not_half_float", "packed.not_legacy", "packed.magnitude", "scales.finite", "scales.positive",
          "minimums.finite", "minimums.band", "packed.codes", "weights.whole", "weights.distinct"}  # fmt: skip
NAMES = {"tensors.labels", "tensors.encodings", "tensors.tiles"}
SHAPING: dict[str, tuple[set[str], set[str]]] = {
    # key: (faults that are found all the same, checks that cannot be run)
    "intermediate_size": (FAULTS, NAMES | PACKED - {"scales.finite"}),
    "num_key_value_heads": (FAULTS, NAMES | {"config.sizes"} | PACKED - {"scales.finite"}),
    "num_attention_heads": (
        FAULTS - {"scales.finite"},
        NAMES | {"config.sizes", "tensors.head_dim"} | PACKED,
    ),
}


@pytest.mark.parametrize("key", SHAPING)
def test_a_missing_size_stops_only_the_tensors_that_it_shapes(key: str, tmp_path: Path) -> None:
    found, stopped = SHAPING[key]
    result = package(tmp_path / "p", without(key))
    assert by(result, Outcome.REFUSED) == found | {"config.keys"}
    others = by(result, Outcome.NOT_RUN) - stopped
    assert all(name.startswith(("packed.", "minimums.", "matrices.", "weights.")) for name in others)
    assert stopped <= by(result, Outcome.NOT_RUN)
    assert f"{key} is not stated" in evidence(result, "tensors.tiles")
    if "tensors.head_dim" in stopped:
        assert evidence(result, "tensors.head_dim") == f"not run, because {key} is not stated"


def test_without_the_hidden_size_names_and_scalars_are_still_checked(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        del content["hidden_size"]
        content["block_size"] = 9

    result = package(tmp_path / "p", change)
    assert by(result, Outcome.REFUSED) == {"config.keys", "tensors.explained", "scalars.block_size"}
    assert {"norms.finite", "fusion.finite", "scales.finite"} <= by(result, Outcome.NOT_RUN)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without("num_hidden_layers"), "num_hidden_layers is not stated"),
        (stating(num_hidden_layers="2"), "num_hidden_layers has an impossible value"),
        (stating(architectures=["LlamaForCausalLM"]), "the draft's architecture is not a known one"),
        (stating(architectures=["DFlashDraftModel"] * 2), "the draft's architecture is not a known one"),
    ],
)
def test_where_it_is_not_known_which_tensors_there_are_that_is_the_reason(
    change: Callable[[Content], Any], why: str, tmp_path: Path
) -> None:
    result = package(tmp_path / "p", change)
    assert {"container.header", "container.unclaimed", "manifest.digests"} <= by(result, Outcome.PASS)
    left = {name for name in by(result, Outcome.NOT_RUN) if not name.startswith("config.")}
    assert {name.partition(".")[0] for name in left} >= {"tensors", "packed", "scales", "norms", "fusion", "scalars"}
    assert {evidence(result, name) for name in left} == {f"not run, because {why}"}


@pytest.mark.parametrize("generation", [1, 2])
def test_whatever_single_value_is_bad_each_check_has_its_own_reason(generation: Literal[1, 2], tmp_path: Path) -> None:
    """Every key, missing, impossible and stated twice."""
    tiny(tmp_path / "p", generation, manifest=False, **SMALLEST)
    path = tmp_path / "p" / "config.json"
    sound = path.read_text()
    content = json.loads(sound)
    places = [(content, key) for key in content] + [(content["dflash_config"], key) for key in content["dflash_config"]]
    for section, key in places:
        value = section.pop(key)
        changes: list[Content] = [{}, {key: {"no": ["value"]}}, {key: value, f"dflash.{key}": "another"}]
        for change in changes:
            section.update(change)
            path.write_text(json.dumps(content))
            result = gate(tmp_path / "p")
            assert NOT_REACHED not in {check.evidence for check in result.checks}, (key, change)
            section.pop(f"dflash.{key}", None)
        section[key] = value
        assert json.loads(sound) == content


def test_a_tensor_that_was_not_looked_at_is_no_pass_of_the_values(tmp_path: Path) -> None:
    """One that is missing, of a role that no other fault touches."""
    tiny(tmp_path / "p", 1)
    edit_container(tmp_path / "p", lambda tensors: tensors.__delitem__("model.layers.1.self_attn.k_norm.weight"))
    result = gate(tmp_path / "p")
    assert by(result, Outcome.REFUSED) == {"tensors.present"}
    assert by(result, Outcome.NOT_RUN) == {"norms.lengths", "norms.finite", "norms.bfloat16"}
    assert "layers.1.self_attn.k_norm.weight is not there" in evidence(result, "norms.finite")


def test_a_scalar_under_a_key_of_a_gguf_is_missing_and_unexplained(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    edit_container(
        tmp_path / "p",
        lambda tensors: tensors.update({"dflash.attention.sliding_window": tensors.pop("dflash.sliding_window")}),
    )
    result = gate(tmp_path / "p")
    assert by(result, Outcome.REFUSED) == {"tensors.present", "tensors.explained"}
    assert evidence(result, "scalars.sliding_window") == "not run, because the scalar is not there"


@pytest.mark.parametrize(
    ("spoil_it", "why"),
    [
        (lambda folder: (folder / "model.q4nx").unlink(), "no container could be opened"),
        (
            lambda folder: (folder / "model.q4nx").write_bytes(b""),
            "the container's header is refused or cannot be read",
        ),
    ],
)
@pytest.mark.parametrize("generation", [1, 2])
def test_without_a_container_or_its_header_every_check_of_it_says_so(
    spoil_it: Callable[[Path], Any], why: str, generation: Literal[1, 2], tmp_path: Path
) -> None:
    tiny(tmp_path / "p", generation, manifest=False)
    spoil_it(tmp_path / "p")
    result = gate(tmp_path / "p")
    not_run = by(result, Outcome.NOT_RUN) - {"files.whole"}
    applying = {each.id for each in CHECKS if generation in each.generations and each.id in OF_CONTAINER}
    assert not_run | by(result, Outcome.REFUSED) | by(result, Outcome.PASS) >= applying
    assert {evidence(result, name) for name in not_run} == {f"not run, because {why}"}


def test_every_check_of_an_unreadable_config_says_so(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    (tmp_path / "p" / "config.json").write_text("{")
    result = gate(tmp_path / "p")
    assert evidence(result, "config.mask") == "not run, because config.json cannot be read"
    assert evidence(result, "tensors.tiles") == "not run, because the config cannot be read"
    assert "container.header" in by(result, Outcome.PASS)


def test_a_size_that_is_not_stated_makes_no_finding_of_what_repeats_it(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content |= {"draft_vocab_size": content.pop("vocab_size"), "target_hidden_size": content.pop("hidden_size")}

    assert by(package(tmp_path / "p", change, spoiled=False), Outcome.REFUSED) == {"config.keys"}


def test_the_sentence_counts_what_could_not_be_run(tmp_path: Path) -> None:
    result = package(tmp_path / "p", without("block_size"), spoiled=False)
    applied = len(result.checks) - len(result.of(Outcome.NOT_APPLICABLE))
    assert result.sentence == f"fails 1 of {applied} checks; 1 could not be run"


@pytest.mark.parametrize("named", [["DFlashDraftModel", "DFlash2DraftModel"], "DFlashDraftModel"])
def test_known_architectures_that_are_no_list_of_one_are_told_from_unknown_ones(named: Any, tmp_path: Path) -> None:
    (refusal,) = package(tmp_path / "p", stating(architectures=named), spoiled=False).refusals
    assert "one architecture, in a list of one" in refusal.sentence
    (refusal,) = package(tmp_path / "q", stating(architectures=["Other"]), spoiled=False).refusals
    assert "no DFlash draft of either generation" in refusal.sentence


@pytest.mark.parametrize("key", ["conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"])
def test_a_missing_key_of_generation_2_stops_its_own_tensors_only(key: str, tmp_path: Path) -> None:
    tiny(tmp_path / "p", 2)
    edit_container(tmp_path / "p", lambda tensors: bytes_of(tensors["model.norm.weight"]).__setitem__(slice(2), NAN))

    def change(content: Content) -> Content:
        del content["dflash_config"][key]
        return content

    edit_config(tmp_path / "p", change)
    result = gate(tmp_path / "p")
    assert by(result, Outcome.REFUSED) == {"config.keys", "norms.finite"}
    (refusal,) = [each for each in result.refusals if each.code == "dflash.key_missing"]
    assert refusal.sentence.startswith(f"{key} is not stated and no default is invented for it. Take the config")
    not_run = by(result, Outcome.NOT_RUN)
    assert ("conv.geometry" in not_run) == key.startswith("conv")
    assert ("selector.geometry" in not_run) == (key == "selector_rank")
    assert ("codebooks.geometry" in not_run) == (key == "selector_rank")
    assert ("config.top_k" in not_run) == (key == "selector_top_k")
    assert ("scales.finite" in not_run) == (key != "selector_top_k")
