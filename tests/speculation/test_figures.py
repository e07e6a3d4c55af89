"""Figures of records whose values are known: published, or counted by hand."""

import json
from typing import Any

import pytest

from draftmill.outcome import Refused
from draftmill.speculation.figures import Definition, Figure, compute_figures, figure, pool, ratio, round_cost
from draftmill.speculation.trace import Acceptance
from tests.speculation.records import acceptance, counters, pard, pard2, regime, trace
from tests.support.dflash_packages import REAL

D = Definition


def speed(value: float | None = 1.012, **changes: Any) -> Figure:
    return Figure(D.SPEED_RATIO, value, regime(**changes))


def refusals(error: pytest.ExceptionInfo[Refused]) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in error.value.refusals]


def test_the_published_pard_list_gives_each_of_its_figures() -> None:
    found = compute_figures(pard())
    assert (found.rounds, found.offered, found.accepted) == (21, 84, 44)
    rounded = {name: round(each.value, 3) for name, each in found.pooled.items() if each.value is not None}
    assert rounded[D.ACCEPTED_PER_OFFERED] == 0.524
    assert rounded[D.ACCEPTED_PER_ROUND] == 2.095
    assert rounded[D.TOKENS_UNTRUNCATED] == 3.095
    assert rounded[D.TOKENS_BUDGET] == 3.048
    assert found.pooled[D.ZERO_ROUNDS].counts == (8, 21)
    assert found.pooled[D.FULL_ROUNDS].counts == (10, 21)
    assert found.pooled[D.BETWEEN_ROUNDS].counts == (3, 21)
    assert found.pooled[D.BIMODALITY].counts == (18, 21)
    # 65 tokens produced, 64 asked for.
    assert (found.emitted, found.cut) == (64, 1)


def test_the_pard_list_by_position() -> None:
    found = compute_figures(pard())
    # By hand: 13 rounds accept one or more (10 fours, one two, two ones), 11 two or more, 10 three, 10 four.
    assert found.histogram == (8, 2, 1, 0, 10)
    assert [each.counts for each in found.positions] == [(13, 21), (11, 21), (10, 21), (10, 21)]
    assert [each.counts for each in found.conditional] == [(13, 21), (11, 13), (10, 11), (10, 10)]


def test_accepted_per_tested_is_the_number_of_pards_own_script() -> None:
    # It appends 1 for each accepted draft and one 0 for each round with a rejection: 44 ones, 11 zeros.
    assert figure(D.ACCEPTED_PER_TESTED, pard()).counts == (44, 55)


def test_the_published_pard2_list_has_two_values_by_two_definitions() -> None:
    found = compute_figures(pard2())
    assert (found.rounds, found.offered, found.accepted) == (11, 44, 15)
    assert found.pooled[D.ZERO_ROUNDS].counts == (5, 11)
    untruncated, budget = found.pooled[D.TOKENS_UNTRUNCATED], found.pooled[D.TOKENS_BUDGET]
    assert (untruncated.counts, budget.counts) == ((26, 11), (24, 11))
    assert untruncated.value == pytest.approx(2.364, abs=5e-4)
    assert budget.value == pytest.approx(2.18, abs=5e-3)
    assert found.pooled[D.ACCEPTED_PER_OFFERED].value == pytest.approx(0.341, abs=5e-4)
    with pytest.raises(Refused) as refused:
        ratio(untruncated, budget)
    assert refusals(refused) == [("speculation.definition_differs", "definition")]


def test_the_cost_of_a_round_keeps_the_definition_of_its_tokens() -> None:
    untruncated, budget = figure(D.TOKENS_UNTRUNCATED, pard()), figure(D.TOKENS_BUDGET, pard())
    cost = round_cost(untruncated, speed())
    assert (cost.definition, cost.regime) == (D.COST_UNTRUNCATED, regime())
    assert cost.value == pytest.approx(3.06, abs=5e-3)
    by_budget = round_cost(budget, speed())
    assert by_budget.definition == D.COST_BUDGET
    assert by_budget.value == pytest.approx(3.0115, abs=5e-4)


def test_there_is_no_cost_across_regimes_and_every_difference_is_named() -> None:
    with pytest.raises(Refused) as refused:
        round_cost(figure(D.TOKENS_UNTRUNCATED, pard()), speed(p_min=0.75, device="HRX0"))
    assert refusals(refused) == [("speculation.regime_differs", "p_min"), ("speculation.regime_differs", "device")]


@pytest.mark.parametrize("definition", [D.ACCEPTED_PER_ROUND, D.ACCEPTED_PER_OFFERED])
def test_a_cost_takes_tokens_per_round_only(definition: Definition) -> None:
    with pytest.raises(Refused) as refused:
        round_cost(figure(definition, pard()), speed())
    assert refusals(refused) == [("speculation.not_a_cost", definition.value)]


def test_a_cost_takes_a_speed_ratio_only() -> None:
    tokens = figure(D.TOKENS_UNTRUNCATED, pard())
    with pytest.raises(Refused) as refused:
        round_cost(tokens, tokens)
    assert refusals(refused) == [("speculation.not_a_cost", tokens.definition.value)]


@pytest.mark.parametrize("value", [None, 0.0, -1.0])
def test_a_cost_needs_a_speed(value: float | None) -> None:
    with pytest.raises(Refused) as refused:
        round_cost(figure(D.TOKENS_UNTRUNCATED, pard()), speed(value))
    assert refusals(refused) == [("speculation.undefined", "speed ratio")]


def test_two_figures_of_one_regime_form_a_ratio() -> None:
    full = acceptance(trace([4, 4], budget=9, emitted=9))
    half = acceptance(trace([2, 2, 2], budget=9, emitted=9))
    assert ratio(figure(D.ACCEPTED_PER_ROUND, full), figure(D.ACCEPTED_PER_ROUND, half)) == 2.0


def test_figures_of_two_regimes_form_none() -> None:
    gated = acceptance(trace([4, 4, 4]), p_min=0.75, budget=14)
    plain = acceptance(trace([4, 4, 4]), budget=14)
    with pytest.raises(Refused) as refused:
        ratio(figure(D.ACCEPTED_PER_OFFERED, gated), figure(D.ACCEPTED_PER_OFFERED, plain))
    assert refusals(refused) == [("speculation.regime_differs", "p_min")]
    assert refused.value.refusals[0].measured == 0.75


def test_a_ratio_needs_one_averaging_one_position_and_values() -> None:
    record = acceptance(trace([0, 0]))
    pooled = figure(D.ACCEPTED_PER_ROUND, pard())
    with pytest.raises(Refused) as refused:
        ratio(pooled, figure(D.ACCEPTED_PER_ROUND, pard(), averaging="mean of prompts"))
    assert refusals(refused) == [("speculation.definition_differs", "averaging")]
    with pytest.raises(Refused) as refused:
        ratio(figure(D.POSITION, pard(), position=1), figure(D.POSITION, pard(), position=2))
    assert refusals(refused) == [("speculation.definition_differs", "position")]
    zero = figure(D.ACCEPTED_PER_ROUND, record)
    with pytest.raises(Refused) as refused:
        ratio(zero, zero)
    assert refusals(refused) == [("speculation.undefined", "accepted/rounds")]


# 5, 5 and 1 tokens a round in 2, 1 and 3 rounds: pooled 18/6 = 3; mean of the prompts (5 + 5 + 1)/3.
def several() -> Acceptance:
    ends: dict[str, Any] = {"budget": 10, "stop": "eos"}
    return acceptance(
        trace([4, 4], **(ends | {"emitted": 10, "stop": "budget"})),
        trace([4], emitted=5, **ends),
        trace([0, 0, 0], emitted=3, **ends),
    )


def test_pooling_and_the_mean_of_prompts_differ_and_are_labelled() -> None:
    pooled = figure(D.TOKENS_UNTRUNCATED, several())
    means = figure(D.TOKENS_UNTRUNCATED, several(), averaging="mean of prompts")
    assert (pooled.counts, pooled.value, pooled.averaging) == ((18, 6), 3.0, "pooled")
    assert (means.counts, means.value, means.averaging) == (None, pytest.approx(11 / 3), "mean of prompts")
    # An answer that accepts nothing counts with its 0.
    accepted = figure(D.ACCEPTED_PER_ROUND, several(), averaging="mean of prompts")
    assert accepted.value == pytest.approx((4 + 4 + 0) / 3)


def test_an_answer_without_a_round_counts_in_no_mean() -> None:
    record = acceptance(
        trace([4], budget=10, emitted=5, stop="eos"),
        trace([], budget=10, emitted=1, stop="eos", first_token=True),
    )
    found = compute_figures(record)
    assert (found.answers, found.rounds) == (2, 1)
    assert found.prompt_means[D.TOKENS_UNTRUNCATED].value == 5.0
    assert found.pooled[D.TOKENS_UNTRUNCATED].value == 5.0


def test_an_answer_of_no_round_at_all_has_undefined_figures_not_zeros() -> None:
    found = compute_figures(acceptance(trace([], budget=10, emitted=1, stop="eos", first_token=True)))
    values = [*found.pooled.values(), *found.prompt_means.values(), *found.positions, *found.conditional]
    assert {each.value for each in values} == {None}
    assert found.histogram == (0, 0, 0, 0, 0)


def test_an_answer_of_one_round_has_figures() -> None:
    found = compute_figures(acceptance(trace([2], budget=3, emitted=3)))
    assert found.pooled[D.TOKENS_UNTRUNCATED].value == 3.0
    assert found.pooled[D.TOKENS_BUDGET].value == 3.0
    assert found.pooled[D.BIMODALITY].value == 0.0


def test_an_end_inside_an_accepted_prefix_leaves_rounds_and_length_right_and_the_cut_visible() -> None:
    # Rounds of 5, 1 and 5 tokens; the end of the text is the second of the last five.
    found = compute_figures(acceptance(trace([4, 0, 4], budget=64, emitted=8, stop="eos")))
    assert (found.rounds, found.emitted, found.cut) == (3, 8, 3)
    assert found.pooled[D.TOKENS_UNTRUNCATED].counts == (11, 3)


def test_the_budget_definition_is_undefined_where_an_answer_ended_before_it() -> None:
    assert figure(D.TOKENS_BUDGET, several()).value is None
    assert figure(D.TOKENS_BUDGET, several(), averaging="mean of prompts").value is None
    assert figure(D.TOKENS_BUDGET, acceptance(several().answers[0])).counts == (10, 2)


def test_rounds_without_a_draft_are_neither_zero_nor_full() -> None:
    # Offered 4, 0, 2, 1: full, undrafted, zero, full.
    found = compute_figures(acceptance(trace([4, 0, 0, 1], offered=[4, 0, 2, 1])))
    assert found.undrafted == 1
    assert found.pooled[D.ZERO_ROUNDS].counts == (1, 3)
    assert found.pooled[D.FULL_ROUNDS].counts == (2, 3)
    assert found.pooled[D.ACCEPTED_PER_ROUND].counts == (5, 4)
    assert found.pooled[D.ACCEPTED_PER_TESTED].counts == (5, 6)
    # Only the first round offered a second draft after an accepted one; the plain definition counts all four rounds.
    assert found.conditional[1].counts == (1, 1)
    assert found.positions[1].counts == (1, 4)
    assert found.conditional[0].counts == (2, 3)


def test_counters_give_totals_and_positions_and_nothing_that_needs_a_list() -> None:
    found = compute_figures(acceptance(counters(), route="counters"))
    # The server's own line for these counts: acceptance 0.96154, mean len 4.85.
    assert found.pooled[D.ACCEPTED_PER_OFFERED].value == pytest.approx(0.96154, abs=5e-6)
    assert found.pooled[D.TOKENS_UNTRUNCATED].value == pytest.approx(4.85, abs=5e-3)
    assert found.pooled[D.TOKENS_BUDGET].counts == (64, 13)
    assert [each.counts for each in found.positions] == [(13, 13), (13, 13), (12, 13), (12, 13)]
    assert found.pooled[D.ZERO_ROUNDS].value is None
    assert found.pooled[D.ACCEPTED_PER_TESTED].value is None
    assert found.conditional[0].value is None
    assert found.histogram is None
    silent = compute_figures(acceptance(counters(by_position=None), route="counters"))
    assert {each.value for each in silent.positions} == {None}
    shorter = compute_figures(acceptance(counters(by_position=(13, 13, 12, 12)), route="counters", n_max=5))
    assert shorter.positions[4].counts == (0, 13)


def test_records_of_one_regime_pool() -> None:
    record = pool(pard(), pard())
    assert figure(D.ACCEPTED_PER_OFFERED, record).counts == (88, 168)


def test_records_of_two_regimes_do_not_pool() -> None:
    with pytest.raises(Refused) as refused:
        pool(pard(), pard2())
    assert refusals(refused) == [("speculation.regime_differs", "budget")]
    with pytest.raises(Refused) as refused:
        pool(acceptance(counters(), route="counters"), pard())
    assert refusals(refused) == [("speculation.regime_differs", "route")]


def test_a_figure_in_json_names_definition_averaging_and_regime() -> None:
    rows = compute_figures(pard()).as_json()
    assert (rows["rounds"], rows["histogram"]) == (21, [8, 2, 1, 0, 10])
    assert rows["figures"][0] == {
        "definition": "accepted/offered",
        "averaging": "pooled",
        "position": None,
        "value": 44 / 84,
        "counts": [44, 84],
        "regime": regime().digest,
    }
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize(
    ("definition", "position"), [(D.POSITION, None), (D.POSITION, 0), (D.ZERO_ROUNDS, 1), (D.SPEED_RATIO, None)]
)
def test_a_figure_that_no_record_gives_is_an_error(definition: Definition, position: int | None) -> None:
    with pytest.raises(ValueError, match=definition.value):
        figure(definition, pard(), position=position)


@pytest.mark.skipif(not REAL.is_dir(), reason="shared/data/smollm2-dflash is not here")
def test_recorded_rounds_of_a_real_draft_give_its_recorded_means() -> None:
    recorded = json.loads((REAL / "acceptance.json").read_text())
    # It counts the bonus, takes the first token from the prompt's pass, and runs rounds while 1 + sum <= 96.
    answers = [
        trace(
            [count - 1 for count in prompt["accepted"]],
            offered=7,
            budget=96,
            emitted=96,
            first_token=True,
            prompt=str(at),
        )
        for at, prompt in enumerate(recorded["prompts"])
    ]
    found = compute_figures(acceptance(*answers, n_max=7, block=8))
    # The table of its README.
    assert (found.answers, found.rounds) == (8, 277)
    assert found.pooled[D.TOKENS_UNTRUNCATED].value == pytest.approx(2.84, abs=5e-3)
    assert found.prompt_means[D.TOKENS_UNTRUNCATED].value == pytest.approx(3.34, abs=5e-3)
