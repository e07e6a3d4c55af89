"""Every way a speed measurement can end, against a server that misbehaves on demand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from draftmill.measurement.record import ALONE, WITH_DRAFT, Speed, load
from draftmill.measurement.servers.flags import Drafting
from draftmill.measurement.servers.server import ServerError
from draftmill.measurement.speed import is_loop, measure_speed, turns
from draftmill.measurement.speed_results import speed_result
from draftmill.measurement.statistics import Rule
from draftmill.outcome import Refused, Unavailable
from draftmill.reports.measurement_json import report_json
from tests.support.mock_pair import mock_plan, write_gguf
from tests.support.mock_server import INIT_ERROR, NO_ROLL_BACK, VOCABULARIES, Misbehaviour

# A round of four accepted drafts costs 1.5 target tokens. The 23 tokens after the first take four rounds of five tokens
# and one of three (two drafts before the budget's last token): 5 x 1.5 = 7.5 target tokens instead of 23.
FAST = Misbehaviour(token_ms=3)
SLOW = Misbehaviour(token_ms=2, accepts=(0,), round_cost=2)
# The machine of these tests is shared, and how busy it is must not decide what is looked at here: not by the rule
# against waiting, and not by the requests' time on the wall, for which the server's own word of it stands.
PATIENT = Rule(waiting=1.0)


def measured(folder: Path, misbehaviour: Misbehaviour, pairs: int = 8, **changes: object) -> Speed:
    record = measure_speed(mock_plan(folder, misbehaviour, **changes), pairs)
    told = [
        sample.model_copy(update={"wall_s": (sample.prompt_ms + sample.predicted_ms) / 1000})
        for sample in record.samples
    ]
    assert all(sample.wall_s < taken.wall_s for sample, taken in zip(told, record.samples, strict=True))
    return record.model_copy(update={"samples": tuple(told)})


def test_requests_alternate_and_the_order_is_swapped_at_every_pair():
    order = [(turn.arm, turn.pairs, turn.second) for turn in turns(3, 1)]
    assert order == [
        (ALONE, (0,), False), (WITH_DRAFT, (0,), True),
        (WITH_DRAFT, (1,), False), (ALONE, (1,), True),
        (ALONE, (2,), False), (WITH_DRAFT, (2,), True),
    ]  # fmt: skip
    blocks = [(turn.arm, turn.pairs) for turn in turns(3, 2)]
    assert blocks == [(ALONE, (0, 1)), (WITH_DRAFT, (0, 1)), (WITH_DRAFT, (2,)), (ALONE, (2,))]


def test_a_draft_that_pays_is_faster_and_identical(tmp_path):
    record = measured(tmp_path, FAST)
    result = speed_result(record, PATIENT)
    assert (result.word, result.lossless) == ("faster", "identical")
    assert result.generation is not None
    assert 1.5 < result.generation.ratio < 23 / 7.5 + 0.2
    kept = [sample for sample in record.samples if sample.pair is not None]
    assert [sample.arm for sample in kept[:4]] == [ALONE, WITH_DRAFT, WITH_DRAFT, ALONE]
    assert [sample.prompt for sample in kept[:6]] == ["add", "add", "sky", "sky", "loop", "loop"]
    assert sum(sample.pair is None for sample in record.samples) == 2
    assert {kind.kind for kind in result.kinds} == {"maths", "explanation", "code"}


def test_the_counters_of_a_sample_are_those_of_its_rounds(tmp_path):
    record = measured(tmp_path, FAST, pairs=1)
    counters = next(sample.counters for sample in record.samples if sample.arm == WITH_DRAFT and sample.pair == 0)
    assert counters is not None
    # 24 tokens: one of the prompt's pass, then rounds of 5, 5, 5, 5 and one of 3 that offers two.
    assert (counters.offered, counters.accepted, counters.passes, counters.undrafted) == (18, 18, 5, 0)
    assert counters.by_position == (5, 5, 4, 4)


def test_a_draft_that_costs_more_than_it_gives_is_slower(tmp_path):
    result = speed_result(measured(tmp_path, SLOW), PATIENT)
    assert (result.word, result.lossless) == ("slower", "identical")
    assert result.acceptance is not None
    assert result.acceptance.accepted == 0


def test_a_slow_first_request_is_set_apart_and_told(tmp_path):
    result = speed_result(measured(tmp_path, replace(FAST, first=10)), PATIENT)
    assert result.word == "faster"
    warm_up = result.arms[0].warm_up
    assert warm_up is not None
    assert warm_up.relative[0] > 3


def with_ratios(record: Speed, ratios: list[float]) -> Speed:
    """The record with pair i's request with the draft 1 / ratios[i] of what the target alone took."""
    alone = {sample.pair: sample.wall_s for sample in record.samples if sample.arm == ALONE}
    samples = [
        sample.model_copy(update={"wall_s": alone[sample.pair] / ratios[sample.pair]})
        if sample.arm == WITH_DRAFT and sample.pair is not None
        else sample
        for sample in record.samples
    ]
    return record.model_copy(update={"samples": tuple(samples)})


def test_a_run_whose_ratio_moves_gives_no_verdict(tmp_path):
    record = measured(tmp_path, FAST, pairs=10)
    result = speed_result(with_ratios(record, [1.5 + 0.1 * pair for pair in range(10)]), PATIENT)
    assert (result.word, result.reason) == ("no verdict", "drift")
    swapped = [1.5 + 0.1 * ((7 * pair) % 10) for pair in range(10)]
    assert speed_result(with_ratios(record, swapped), PATIENT).word == "faster"


def test_a_server_that_slows_down_with_its_draft_gives_no_verdict(tmp_path):
    result = speed_result(measured(tmp_path, replace(FAST, drift_drafting=0.2), pairs=10), PATIENT)
    assert (result.word, result.reason) == ("no verdict", "drift")
    assert result.request is not None
    assert result.request.drift.slope < 0


def test_ratios_on_both_sides_of_one_give_no_verdict_and_say_how_many_pairs_would(tmp_path):
    record = measured(tmp_path, FAST, pairs=8)
    result = speed_result(with_ratios(record, [1.3, 0.9, 1.2, 0.8, 1.25, 0.85, 1.35, 0.95]), PATIENT)
    assert (result.word, result.reason) == ("no verdict", "interval too wide")
    assert result.request is not None
    assert result.request.settles_at is not None
    assert result.request.settles_at > 8
    assert str(result.request.settles_at) in result.sentence


def test_too_few_pairs_give_no_verdict(tmp_path):
    result = speed_result(measured(tmp_path, FAST, pairs=3), PATIENT)
    assert (result.word, result.reason) == ("no verdict", "too few pairs")
    # Three values give no interval of this level: none is told.
    assert "[" not in result.sentence
    assert "over 3 pairs" in result.sentence


def test_a_machine_whose_cores_are_taken_gives_no_verdict(tmp_path):
    record = measured(tmp_path, FAST)
    waiting = [sample.model_copy(update={"waited_s": 1.0, "cpu_s": 3.0}) for sample in record.samples]
    result = speed_result(record.model_copy(update={"samples": tuple(waiting)}))
    assert (result.word, result.reason) == ("no verdict", "machine too busy")
    assert "25%" in result.sentence


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", "no_spec_type"),
        (VOCABULARIES, "vocabularies"),
        (NO_ROLL_BACK, "context_cannot_roll_back"),
        (INIT_ERROR, "init_error"),
    ],
)
def test_a_draft_that_the_engine_dropped_is_named_and_gives_no_ratio(tmp_path, log, cause):
    record = measured(tmp_path, Misbehaviour(speculation_off=True, init_log=log))
    result = speed_result(record)
    assert record.silence is not None
    assert record.silence.cause == cause
    assert (result.word, result.request, result.generation, result.lossless) == ("did not speculate", None, None, None)
    assert cause in result.sentence


def test_a_spec_type_of_none_measures_nothing(tmp_path):
    plan = mock_plan(tmp_path, FAST)
    record = measure_speed(replace(plan, drafting=replace(plan.drafting, spec_type="none")), 2)
    assert record.silence is not None
    assert record.silence.cause == "no_spec_type"


def test_a_server_that_counts_no_drafts_did_not_speculate(tmp_path):
    record = measured(tmp_path, replace(FAST, missing_counters=True))
    assert record.silence is not None
    assert record.silence.cause == "nothing_drafted"


@pytest.mark.parametrize(
    ("misbehaviour", "kind"),
    [
        (Misbehaviour(different_at=5, gap=0.02), "near-tie"),
        (Misbehaviour(different_at=5, gap=3.0, batch_agrees=True), "another batch width"),
        (Misbehaviour(different_at=5, gap=3.0), "clear gap"),
    ],
)
def test_texts_that_part_are_told_by_place_and_kind(tmp_path, misbehaviour, kind):
    record = measured(tmp_path, replace(misbehaviour, token_ms=0.5), pairs=6)
    assert {divergence.position for divergence in record.divergences} == {5}
    assert {divergence.kind for divergence in record.divergences} == {kind}
    assert {divergence.pair for divergence in record.divergences} == set(range(6))
    first = record.divergences[0]
    assert first.gap == pytest.approx(misbehaviour.gap)
    assert first.best == (first.with_draft if misbehaviour.batch_agrees else first.alone)
    assert speed_result(record, PATIENT).lossless == f"diverged: {kind}"


def test_an_answer_that_repeats_itself_is_remarked(tmp_path):
    record = measured(tmp_path, Misbehaviour(echo_loop=True, token_ms=0.2), pairs=3, budget=40)
    assert any("repeat themselves" in remark for remark in record.remarks)
    assert not any("repeat themselves" in remark for remark in measured(tmp_path, FAST, pairs=1, budget=40).remarks)


def test_a_loop_is_a_second_half_of_a_short_period():
    assert is_loop([9, 8] + [1, 2, 3] * 12)
    assert not is_loop(list(range(40)))
    assert not is_loop([7] * 20)  # too short to tell


@pytest.mark.parametrize(
    ("misbehaviour", "code"),
    [(Misbehaviour(crash_at=3), "server.crashed"), (Misbehaviour(garbage_at=2), "client.answer")],
)
def test_a_server_that_breaks_in_its_arm_is_a_failure_that_says_so(tmp_path, misbehaviour, code):
    with pytest.raises((ServerError, Unavailable)) as error:
        measured(tmp_path, misbehaviour)
    assert error.value.code == code


def test_one_server_at_a_time_restarts_for_every_block_and_warms_up_anew(tmp_path):
    record = measured(tmp_path, FAST, pairs=4, together=False, block=2)
    assert not record.setup.together
    order = [(sample.arm, sample.pair) for sample in record.samples]
    assert order == [
        (ALONE, None), (ALONE, 0), (ALONE, 1),
        (WITH_DRAFT, None), (WITH_DRAFT, 0), (WITH_DRAFT, 1), (WITH_DRAFT, 2), (WITH_DRAFT, 3),
        (ALONE, None), (ALONE, 2), (ALONE, 3),
    ]  # fmt: skip


def test_a_draft_of_another_vocabulary_is_refused_before_any_server_starts(tmp_path):
    plan = mock_plan(tmp_path, Misbehaviour(exit_at_start=True))
    other = write_gguf(tmp_path / "other.gguf", [f"x{token}" for token in range(300)])
    with pytest.raises(Refused) as error:
        measure_speed(replace(plan, drafting=Drafting(other, 4, 0, 0.0)), 2)
    assert [refusal.code for refusal in error.value.refusals] == ["tokenizer.pair_text"]


def test_a_prompt_that_leaves_no_room_is_refused_by_name(tmp_path):
    plan = mock_plan(tmp_path, FAST)
    with pytest.raises(Refused) as error:
        measure_speed(replace(plan, settings=replace(plan.settings, context=40)), 2)
    # 11, 14 and 10 bytes of text are as many tokens; 24 of budget, 4 drafts and the bonus: 40, 43 and 39.
    assert [(refusal.where, refusal.measured) for refusal in error.value.refusals] == [("sky", 43)]


def test_the_report_gives_the_record_back_and_figures_are_computed_anew(tmp_path):
    record = measured(tmp_path, FAST, pairs=6)
    raw = report_json(record)
    assert load(raw.encode()) == record


def test_a_report_whose_regime_is_not_that_of_its_samples_is_refused(tmp_path):
    record = measured(tmp_path, FAST, pairs=2)
    forged = json.loads(report_json(record))
    forged["record"]["regime"]["budget"] = 99
    with pytest.raises(Refused) as error:
        load(json.dumps(forged).encode())
    assert error.value.code == "measurement.report_invalid"


def test_an_answer_that_ran_into_a_small_budget_is_not_remarked_on(tmp_path):
    assert measured(tmp_path, FAST, pairs=1, budget=8).remarks == ()


def test_more_threads_than_cores_are_remarked_on(tmp_path):
    plan = mock_plan(tmp_path, FAST)
    crowded = measure_speed(replace(plan, settings=replace(plan.settings, threads=9999)), 1)
    assert any(remark.startswith("9999 threads on ") for remark in crowded.remarks)
    assert not any("threads" in remark for remark in measure_speed(plan, 1).remarks)
