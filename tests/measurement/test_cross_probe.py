"""The own target and draft asked about one place: margins and window rules, held against the loop and by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from draftmill.dflash.forward import Draft, WindowRule
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.proposer import DFlashProposer
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.measurement.cross_probe import OwnProbe
from draftmill.measurement.subject import Encoded
from draftmill.speculation.greedy import decode
from tests.support.draft_arrays import Arrays, small_draft
from tests.support.hugging_face_target import write_target

torch = pytest.importorskip("torch", reason="torch is not installed")

from draftmill.speculation.transformers_target import TransformersTarget  # noqa: E402

PROMPT = Encoded("one", "kind", tuple(range(10, 40)))
WINDOW = 12
"""Less than the prompt, so that the rules see other keys."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TransformersTarget:
    folder: Path = write_target(tmp_path_factory.mktemp("probe") / "target")
    return TransformersTarget.open(folder, (1, 5, 9))


def draft(rule: WindowRule = WindowRule.EXCLUSIVE, window: int = WINDOW, generation: int = 1) -> Draft:
    config = replace(synthetic_config(generation), sliding_window=window)
    tensors = {name: values * 8 if values.ndim > 1 else values for name, values in synthetic_tensors(config).items()}
    return Draft(Weights(Arrays(config, tensors), np.dtype(np.float32)), window_rule=rule)


def first_round(target: TransformersTarget, of: Draft) -> tuple[int, list[int]]:
    """The anchor, and what the loop drafts behind it."""
    found = decode(target, DFlashProposer(of, target), PROMPT.tokens, budget=2)
    return found.tokens[0], list(found.drafted[0].tokens)


@pytest.mark.parametrize("rule", [WindowRule.INCLUSIVE, WindowRule.IGNORED])
def test_another_rule_is_asked_as_the_loop_would_draft_with_it(target, rule):
    anchor, drafts = first_round(target, draft(rule))
    assert drafts != first_round(target, draft())[1], "the rules give other drafts here"
    probe = OwnProbe(target, draft())
    text = [*drafts[:3], (drafts[3] + 1) % 512]
    found = probe.window(PROMPT, [anchor], text, rule)
    assert (found.context, found.window, found.accepted) == (30, WINDOW, 3)


def test_inside_the_window_and_with_the_own_rule_nothing_can_differ(target):
    wide = OwnProbe(target, draft(window=38))
    assert wide.window(PROMPT, [5], [1, 2], WindowRule.INCLUSIVE).accepted is None, "30 positions and a block of 8"
    narrow = OwnProbe(target, draft(window=37))
    assert narrow.window(PROMPT, [5], [1, 2], WindowRule.INCLUSIVE).accepted is not None
    assert narrow.window(PROMPT, [5], [1, 2], WindowRule.EXCLUSIVE).accepted is None


def test_the_gap_is_of_the_best_score_over_the_second_or_over_what_was_wanted(target):
    anchor, drafts = first_round(target, draft())
    of = draft()
    cache = of.cache()
    cache.extend(target.prefill(PROMPT.tokens).features)
    hidden = cache.forward_cached(target.embed([anchor, *[of.config.mask_token_id] * 7]))[1:]
    ranked = np.sort(target.head(hidden)[2])
    probe = OwnProbe(target, draft())
    assert probe.draft_gap(PROMPT, [anchor], 2, drafts[2]) == pytest.approx(ranked[-1] - ranked[-2], abs=1e-4)
    other = (drafts[2] + 1) % 512
    wanted = target.head(hidden)[2][other]
    assert probe.draft_gap(PROMPT, [anchor], 2, other) == pytest.approx(ranked[-1] - wanted, abs=1e-4)
    logits = np.sort(target.prefill([*PROMPT.tokens, anchor]).logits[-1])
    assert probe.target_gap(PROMPT, [anchor]) == pytest.approx(logits[-1] - logits[-2], abs=1e-4)


def test_scores_of_generation_2_are_those_that_its_pick_compares():
    of = small_draft(2)
    rng = np.random.default_rng(3)
    hidden, logits = rng.standard_normal(32), rng.standard_normal(97)
    tensors = of.weights.source.tensors  # type: ignore[attr-defined]
    names = (
        f"candidate_selector.{name}"
        for name in ("hidden_projection.weight", "predecessor_codebook", "successor_codebook")
    )
    projection, before, after = (tensors[name] for name in names)
    top = np.argsort(-logits)[:7]
    found = of.scores(hidden, logits, 11)
    assert set(np.flatnonzero(np.isfinite(found))) == set(top)
    for token in top:
        by_hand = logits[token] + sum(before[11] * (projection @ hidden) * after[token])
        assert found[token] == pytest.approx(by_hand, abs=1e-9)
    assert int(found.argmax()) == of.pick(hidden, logits, 11)
