"""What config.json has to say for a drafter to be PARD or PARD-2."""

from typing import Any

import pytest

from draftmill.outcome import Refused
from draftmill.pard.config import detect

PLAIN: dict[str, Any] = {"vocab_size": 151936, "hidden_size": 1024, "model_type": "qwen3"}
PARD = PLAIN | {"pard_token": 151670, "spd_type": "pard"}
PARD2 = PLAIN | {
    "pard_token": 151670,
    "spd_type": "pard2",
    "pard2": True,
    "pard2_target_layers": [-1, -8, -16, -24],
    "pard2_target_dim": 16384,
    "pard2_scale": 0.02,
    "pard2_proj_bias": False,
}


@pytest.mark.parametrize(
    "config", [PLAIN, PLAIN | {"pard_token": 151670}, PARD | {"spd_type": "eagle"}, PARD | {"spd_type": None}]
)
def test_a_config_that_does_not_declare_pard_is_not_pard(config: dict[str, Any]) -> None:
    assert detect(config) is None


def test_pard_is_a_mask_and_its_type() -> None:
    found = detect(PARD)
    assert found is not None
    assert (found.generation, found.mask, found.projector_shapes, found.target_hidden) == ("PARD", 151670, {}, None)


@pytest.mark.parametrize("missing", ["spd_type", "pard2"])
def test_either_mark_of_pard2_suffices(missing: str) -> None:
    found = detect({key: value for key, value in PARD2.items() if key != missing})
    assert found is not None
    assert found.generation == "PARD-2"
    # 4 layers of Qwen3-8B's 4096, for a draft 1024 wide.
    assert found.projector_shapes == {"target_proj.weight": (1024, 16384)}
    assert (found.target_hidden, found.target_layers, found.scale) == (4096, (-1, -8, -16, -24), 0.02)


def test_pard2_true_beats_the_older_type() -> None:
    found = detect(PARD2 | {"spd_type": "pard"})
    assert found is not None
    assert found.generation == "PARD-2"


def test_the_older_names_of_the_keys_are_read() -> None:
    older = {
        key: value for key, value in PARD2.items() if key not in ("pard2_target_dim", "pard2_scale", "pard2_proj_bias")
    }
    found = detect(older | {"pard_target_dim": 20480, "feat_scale": 0.05, "proj_bias": True})
    assert found is not None
    assert found.projector_shapes == {"target_proj.weight": (1024, 20480), "target_proj.bias": (1024,)}
    assert (found.target_hidden, found.scale) == (5120, 0.05)


BROKEN = [
    ({"pard_token": None}, ["pard.token_invalid"]),
    ({"pard_token": "151670"}, ["pard.token_invalid"]),
    ({"pard_token": True}, ["pard.token_invalid"]),
    ({"pard_token": -1}, ["pard.token_invalid"]),
    ({"pard_token": 151936}, ["pard.token_invalid"]),
    ({"hidden_size": None}, ["pard.hidden_missing"]),
    ({"pard2_target_layers": None}, ["pard.target_layers_missing"]),
    ({"pard2_target_layers": []}, ["pard.target_layers_missing"]),
    ({"pard2_target_layers": [True]}, ["pard.target_layers_missing"]),
    ({"pard2_target_dim": 16383}, ["pard.target_dim_invalid"]),
    ({"pard2_target_dim": 0}, ["pard.target_dim_invalid"]),
    ({"pard_token": None, "pard2_target_layers": None}, ["pard.token_invalid", "pard.target_layers_missing"]),
]


@pytest.mark.parametrize(("change", "codes"), BROKEN)
def test_a_declaration_that_is_not_whole_is_refused(change: dict[str, Any], codes: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        detect(PARD2 | change)
    assert [refusal.code for refusal in refused.value.refusals] == codes


@pytest.mark.parametrize("mask", [0, 151935])
def test_any_id_of_the_vocabulary_can_be_the_mask(mask: int) -> None:
    found = detect(PARD | {"pard_token": mask})
    assert found is not None
    assert found.mask == mask


def test_pard2_without_a_stated_width_has_no_known_projector() -> None:
    found = detect(PARD2 | {"pard2_target_dim": None})
    assert found is not None
    assert (found.projector_shapes, found.target_hidden) == ({}, None)
