"""Ids that look shifted by one are flagged, published ones are recognised, impossible ones refused."""

import copy
from typing import Any

import pytest

from draftmill.dflash.config import parse_config
from draftmill.dflash.layer_ids import KNOWN, spread_evenly
from draftmill.outcome import Refused
from tests.dflash.published import BOLT, MUSE, QWEN3_8B, QWEN36_27B, QWEN38

PUBLISHED = [BOLT, MUSE, QWEN3_8B, QWEN36_27B, QWEN38]


def with_ids(content: dict[str, Any], ids: list[int], **changes: Any) -> dict[str, Any]:
    content = copy.deepcopy(content) | changes
    content["dflash_config"]["target_layer_ids"] = ids
    return content


def remarks(content: dict[str, Any]) -> dict[str, str]:
    return {remark.code: remark.sentence for remark in parse_config(content).remarks}


@pytest.mark.parametrize("content", PUBLISHED)
@pytest.mark.parametrize("step", [1, -1])
def test_a_published_draft_shifted_by_one_is_flagged(content: dict[str, Any], step: int) -> None:
    ids = [each + step for each in content["dflash_config"]["target_layer_ids"]]
    found = remarks(with_ids(content, ids))
    assert list(found) == ["dflash.layer_ids_shifted"]
    assert "was published with" in found["dflash.layer_ids_shifted"]
    assert str(content["dflash_config"]["target_layer_ids"]) in found["dflash.layer_ids_shifted"]
    # Only ids that are too high can come from a format that stores L+1.
    assert ("GGUF and speculators store L+1" in found["dflash.layer_ids_shifted"]) is (step == 1)
    assert ("look one too low" in found["dflash.layer_ids_shifted"]) is (step == -1)


@pytest.mark.parametrize("content", PUBLISHED)
def test_a_published_draft_as_it_is_is_recognised_and_not_flagged(content: dict[str, Any]) -> None:
    assert list(remarks(content)) == ["dflash.layer_ids_known"]


UNKNOWN = {"hidden_size": 1024, "intermediate_size": 2048}
"""Sizes of no known draft."""


def test_an_unknown_draft_one_off_the_even_spread_is_flagged() -> None:
    # 36 layers, 5 taps: 1 + i x 8.
    assert "evenly spread" in remarks(with_ids(QWEN3_8B, [2, 10, 18, 26, 34], **UNKNOWN))["dflash.layer_ids_shifted"]
    found = remarks(with_ids(QWEN3_8B, [0, 8, 16, 24, 32], **UNKNOWN))["dflash.layer_ids_shifted"]
    assert "look one too low: evenly spread ids would be [1, 9, 17, 25, 33], each one more" in found
    assert remarks(with_ids(QWEN3_8B, [1, 9, 17, 25, 33], **UNKNOWN)) == {}
    assert remarks(with_ids(QWEN3_8B, [2, 9, 17, 25, 33], **UNKNOWN)) == {}


@pytest.mark.parametrize(("highest", "flagged"), [(33, False), (34, True), (35, True)])
def test_an_unknown_draft_that_taps_the_last_layers_is_flagged(highest: int, flagged: bool) -> None:
    found = remarks(with_ids(QWEN3_8B, [3, 9, 17, 25, highest], **UNKNOWN))
    assert ("dflash.layer_ids_shifted" in found) is flagged


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([2, 10, 18, 26, 36], "dflash.layer_ids_range"),
        ([-1, 9, 17, 25, 33], "dflash.layer_ids_range"),
        ([1, 9, 17, 25, 37], "dflash.layer_ids_range"),
        ([1, 9, 9, 25, 33], "dflash.layer_ids_repeated"),
    ],
)
def test_ids_that_cannot_be_layers_of_the_target_are_refused(ids: list[int], code: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_config(with_ids(QWEN3_8B, ids))
    (refusal,) = refused.value.refusals
    assert refusal.code == code
    # 36 of 36 layers is what L+1 of the last layer looks like; 37 is not.
    assert ("L+1 was stored" in refusal.sentence) is (ids[-1] == 36)
    assert ("one was taken off" in refusal.sentence) is (ids[0] == -1)


def test_negative_ids_are_refused_even_without_the_targets_depth() -> None:
    with pytest.raises(Refused) as refused:
        parse_config(with_ids(QWEN3_8B, [-1, 9], num_target_layers=None))
    assert refused.value.code == "dflash.layer_ids_range"


def test_an_unknown_depth_and_an_odd_order_are_remarks() -> None:
    found = remarks(with_ids(QWEN3_8B, [9, 1, 17, 25, 33], num_target_layers=None, **UNKNOWN))
    assert sorted(found) == ["dflash.layer_ids_order", "dflash.target_depth_unknown"]


@pytest.mark.parametrize(
    ("depth", "taps", "ids"),
    [
        (64, 5, (1, 16, 31, 46, 61)),  # z-lab #156
        (36, 5, (1, 9, 17, 25, 33)),
        (36, 1, (18,)),
        (30, 3, (1, 14, 27)),
        (29, 3, (1, 14, 26)),  # 13.5 rounds to the even 14
        (31, 3, (1, 14, 28)),  # 14.5 too
    ],
)
def test_the_even_spread_is_that_of_the_older_tools(depth: int, taps: int, ids: tuple[int, ...]) -> None:
    assert spread_evenly(depth, taps) == ids


def test_the_table_of_known_drafts_is_one_of_hugging_face_ids() -> None:
    for draft in KNOWN:
        assert list(draft.ids) == sorted(set(draft.ids))
        assert draft.num_target_layers is None or draft.ids[-1] <= draft.num_target_layers - 3
