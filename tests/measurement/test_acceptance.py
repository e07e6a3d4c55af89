"""Two routes to acceptance: the engine's counters, and every draft held to the target's own text."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from draftmill.measurement.acceptance import judge, measure_by_counters, measure_token_exact
from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.subject import Encoded
from draftmill.outcome import Refused, Unavailable
from draftmill.speculation.figures import Definition, ratio
from draftmill.speculation.trace import Trace
from tests.support.mock_pair import mock_plan
from tests.support.mock_server import Misbehaviour

PROMPT = Encoded("sky", "explanation", (1, 2, 3))
SEED = [4, 0, 4, 4, 1, 2, 4, 4, 4, 0, 0, 0, 4, 0, 0, 4, 0, 4, 0, 1, 4]


def text(count: int) -> list[int]:
    return list(range(100, 100 + count))


def scripted(tokens: Sequence[int], counts: Sequence[int]):
    """A draft that is right for as many tokens a round as `counts` says, and wrong from then on."""
    left = iter(counts)

    def offer(context: Sequence[int], count: int) -> list[int]:
        at = len(context) - len(PROMPT.tokens)
        assert tuple(context) == (*PROMPT.tokens, *tokens[:at])
        right = next(left)
        return [*tokens[at : at + right], *[0] * (count - right)]

    return offer


def test_the_seed_run_of_21_rounds_is_judged_as_it_was():
    tokens = text(64 + 4)
    trace = judge(PROMPT, tokens, "budget", scripted(tokens, SEED), 64, 4)
    assert [round.accepted for round in trace.rounds] == SEED
    assert (trace.offered, trace.accepted, trace.passes, trace.emitted, trace.stop) == (84, 44, 21, 64, "budget")


def test_a_round_is_judged_beyond_the_budget_as_within_it():
    tokens = text(8 + 4)
    # 8 tokens: a round of 5, then one of 5 of which 3 are wanted; all four drafts were right.
    trace = judge(PROMPT, tokens, "budget", scripted(tokens, [4, 4]), 8, 4)
    assert [(round.offered, round.accepted) for round in trace.rounds] == [(4, 4), (4, 4)]
    assert trace.produced == 10


def test_the_end_of_the_text_ends_the_rounds():
    tokens = text(6)
    trace = judge(PROMPT, tokens, "eos", scripted(tokens, [2, 2]), 64, 4)
    assert [round.accepted for round in trace.rounds] == [2, 2]
    assert (trace.emitted, trace.stop) == (6, "eos")


def test_drafts_after_the_end_of_the_text_are_not_accepted():
    tokens = text(3)
    trace = judge(PROMPT, tokens, "eos", lambda context, count: [*tokens, 7], 64, 4)
    assert [(round.offered, round.accepted) for round in trace.rounds] == [(4, 3)]
    assert (trace.emitted, trace.stop) == (3, "eos")


def test_a_draft_that_ends_the_text_itself_offers_fewer():
    tokens = text(12)
    trace = judge(PROMPT, tokens, "budget", lambda context, count: [tokens[len(context) - 3]], 8, 4)
    assert [(round.offered, round.accepted) for round in trace.rounds] == [(1, 1)] * 4


def test_no_more_than_n_max_drafts_count():
    tokens = text(20)
    trace = judge(PROMPT, tokens, "budget", lambda context, count: tokens[len(context) - 3 :], 8, 3)
    assert [round.offered for round in trace.rounds] == [3, 3]


def test_the_counters_route_keeps_one_total_a_prompt(tmp_path):
    record = measure_by_counters(mock_plan(tmp_path, Misbehaviour(accepts=(2, 0))))
    assert record.acceptance is not None
    # 24 tokens, one of the prompt's pass. Rounds of 3 and 1 tokens in turn: five times 4, then one of 3. Nine of them
    # offer four drafts; with four and three tokens left it is three and two.
    for answer in record.acceptance.answers:
        assert (answer.offered, answer.accepted, answer.passes) == (9 * 4 + 3 + 2, 12, 11)
    assert record.regime.route == "counters"
    result = acceptance_result(record)
    assert result.figures is not None
    assert result.figures.accepted == 3 * 12
    assert set(result.by_kind) == {"maths", "explanation", "code"}


def test_the_token_exact_route_asks_two_servers_and_keeps_every_round(tmp_path):
    # Target and draft of the mock say the same after the same prompt, and other things after a prompt that goes on: the
    # first round is right, the others are as good as never.
    record = measure_token_exact(mock_plan(tmp_path))
    assert record.acceptance is not None
    assert {arm for arm in record.ran} == {"target", "draft"}
    for answer in record.acceptance.answers:
        assert isinstance(answer, Trace)
        assert answer.rounds[0].accepted == 4
        assert sum(round.accepted for round in answer.rounds[1:]) <= 1
        assert answer.emitted == 24
    assert (record.regime.n_min, record.regime.p_min, record.regime.spec_type) == (None, None, "greedy chain")


def test_figures_of_the_two_routes_do_not_compare(tmp_path):
    counted = acceptance_result(measure_by_counters(mock_plan(tmp_path))).figures
    exact = acceptance_result(measure_token_exact(mock_plan(tmp_path))).figures
    assert counted is not None
    assert exact is not None
    with pytest.raises(Refused) as error:
        ratio(counted.pooled[Definition.ACCEPTED_PER_OFFERED], exact.pooled[Definition.ACCEPTED_PER_OFFERED])
    assert {"route", "p_min", "n_min", "spec_type"} == {refusal.where for refusal in error.value.refusals}


def test_a_draft_that_was_dropped_leaves_no_acceptance(tmp_path):
    record = measure_by_counters(mock_plan(tmp_path, Misbehaviour(speculation_off=True)))
    assert record.acceptance is None
    assert record.silence is not None
    assert acceptance_result(record).word == "did not speculate"


def test_an_engine_that_does_not_count_its_rounds_is_measured_by_the_other_route(tmp_path):
    plan = mock_plan(tmp_path, Misbehaviour(missing_rounds=True))
    with pytest.raises(Unavailable) as error:
        measure_by_counters(plan)
    assert error.value.code == "measurement.counters"
    assert "token-exact" in str(error.value)
    assert measure_token_exact(plan).acceptance is not None


def test_counters_that_contradict_the_answer_are_told(tmp_path):
    plan = mock_plan(tmp_path, Misbehaviour(miscounts=3))
    with pytest.raises(Unavailable) as error:
        measure_by_counters(plan)
    assert error.value.code == "measurement.counters"
    assert "contradict" in str(error.value)


def test_one_server_at_a_time_gives_the_same_traces(tmp_path):
    together, apart = (measure_token_exact(replace(mock_plan(tmp_path), together=each)) for each in (True, False))
    assert together.acceptance is not None
    assert apart.acceptance is not None
    assert together.acceptance.answers == apart.acceptance.answers
