"""The candidate selector against its sum written out, and where its transforms act."""

import math

import numpy as np
import pytest

from draftmill.dflash.forward.selector import top_candidates, transformed
from tests.support.draft_arrays import small_config, small_draft


def by_hand(config, tensors, hidden, logits, anchor):
    """The walk, one number at a time (dflash.md 5.4)."""
    before, after = (tensors[f"candidate_selector.{which}_codebook"] for which in ("predecessor", "successor"))
    projection = tensors["candidate_selector.hidden_projection.weight"]
    picked, previous = [], anchor
    for row, scores in zip(hidden, logits, strict=True):
        gates = [sum(w * x for w, x in zip(line, row, strict=True)) for line in projection]
        candidates = sorted(range(len(scores)), key=lambda token: (-scores[token], token))[
            : config.second.selector_top_k
        ]
        best, choice = -math.inf, None
        for token in candidates:
            value = scores[token] * config.output_multiplier
            if config.final_logit_softcapping:
                value = config.final_logit_softcapping * math.tanh(value / config.final_logit_softcapping)
            value += sum(before[previous][r] * gates[r] * after[token][r] for r in range(len(gates)))
            if value > best:
                best, choice = value, token
        picked.append(choice)
        previous = choice
    return picked


@pytest.mark.parametrize(
    "changes",
    [{}, {"output_multiplier": 0.196}, {"output_multiplier": 0.196, "final_logit_softcapping": 0.3}],
    ids=["plain", "multiplier", "softcap"],
)
def test_the_walk_is_the_sum_written_out(changes):
    draft = small_draft(2, **changes)
    rng = np.random.default_rng(3)
    parted, plain = 0, 0
    for trial in range(40):
        hidden, logits = rng.standard_normal((7, 32)), rng.standard_normal((7, 97))
        expected = by_hand(draft.config, draft.weights.source.tensors, hidden, logits, trial)
        assert draft.walk(hidden, logits, trial).tolist() == expected
        plain += expected != logits.argmax(axis=1).tolist()
        # Without the transforms the pairwise term weighs less: the picks are others.
        untouched = by_hand(small_config(2), draft.weights.source.tensors, hidden, logits, trial)
        parted += expected != untouched
    assert plain > 30
    assert parted > 5 if changes else parted == 0


def test_a_pick_is_one_step_of_the_walk():
    draft = small_draft(2)
    rng = np.random.default_rng(4)
    hidden, logits = rng.standard_normal((5, 32)), rng.standard_normal((5, 97))
    walked, previous = [], 11
    for row in range(5):
        previous = draft.pick(hidden[row], logits[row], previous)
        walked.append(previous)
    assert draft.walk(hidden, logits, 11).tolist() == walked
    assert draft.walk(hidden, logits, 12).tolist() != walked


def test_generation_1_takes_the_argmax_whatever_came_before():
    draft = small_draft(1, output_multiplier=0.2, final_logit_softcapping=20.0)
    logits = np.random.default_rng(5).standard_normal((4, 97))
    assert draft.walk(np.zeros((4, 32)), logits, 3).tolist() == logits.argmax(axis=1).tolist()


def test_codebooks_are_read_a_row_at_a_time():
    draft = small_draft(2)
    asked = []
    read = draft.weights.source.decode_rows
    draft.weights.source.decode_rows = lambda name, rows: asked.append((name, len(rows))) or read(name, rows)
    draft.weights.source.decode = lambda name: (
        pytest.fail(f"{name} decoded whole") if "codebook" in name else (draft.weights.source.tensors[name])
    )
    draft.walk(np.ones((3, 32)), np.random.default_rng(6).standard_normal((3, 97)), 5)
    assert asked == [
        ("candidate_selector.successor_codebook", 21),
        ("candidate_selector.predecessor_codebook", 1 + 14),
    ]


def test_of_equal_logits_the_lower_ids_are_candidates():
    logits = np.array([[1.0, 3.0, 2.0, 3.0, 2.0, 2.0]])
    assert top_candidates(logits, 4).tolist() == [[1, 3, 2, 4]]
    assert top_candidates(logits, 9).tolist() == [[1, 3, 2, 4, 5, 0]]


def test_multiplier_comes_before_the_cap():
    config = small_config(output_multiplier=0.5, final_logit_softcapping=4.0)
    assert transformed(np.array([6.0]), config)[0] == pytest.approx(4 * math.tanh(3 / 4), rel=1e-15)


@pytest.mark.parametrize("generation", [1, 2])
def test_padding_of_the_targets_head_is_never_drafted(generation):
    draft = small_draft(generation)
    rng = np.random.default_rng(7)
    hidden, logits = rng.standard_normal((4, 32)), rng.standard_normal((4, 97))
    padded = np.concatenate([logits, np.full((4, 31), 100.0)], axis=1)
    assert draft.walk(hidden, padded, 3).tolist() == draft.walk(hidden, logits, 3).tolist()


def test_an_anchor_that_the_draft_does_not_know_has_no_pairwise_term():
    draft = small_draft(2)
    rng = np.random.default_rng(8)
    hidden, logits = rng.standard_normal((3, 32)), rng.standard_normal((3, 97))
    tensors = dict(draft.weights.source.tensors)
    codebook = np.concatenate([tensors["candidate_selector.predecessor_codebook"], np.zeros((1, 12))])
    expected = by_hand(
        draft.config, tensors | {"candidate_selector.predecessor_codebook": codebook}, hidden, logits, 97
    )
    assert draft.walk(hidden, logits, 200).tolist() == expected


def test_logits_of_a_smaller_head_are_an_error():
    with pytest.raises(ValueError, match="97 columns"):
        small_draft(2).walk(np.zeros((2, 32)), np.zeros((2, 96)), 1)
