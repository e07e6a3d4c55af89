"""What a record may say, and its way through JSON."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from draftmill.outcome import Refused
from draftmill.speculation.figures import Definition, figure
from draftmill.speculation.trace import Acceptance, Round
from tests.speculation.records import PARD, acceptance, counters, pard, regime, trace


def test_totals_follow_from_the_rounds() -> None:
    one = trace([4, 0, 0, 2], offered=[4, 4, 0, 4])
    assert (one.offered, one.accepted, one.passes, one.undrafted) == (12, 6, 4, 1)
    assert one.produced == 10
    assert trace([4, 0], first_token=True).produced == 7


@pytest.mark.parametrize(("offered", "accepted"), [(3, 4), (-1, 0), (4, -1)])
def test_no_more_is_accepted_than_offered(offered: int, accepted: int) -> None:
    with pytest.raises(ValidationError):
        Round(offered=offered, accepted=accepted)
    assert Round(offered=4, accepted=4).accepted == 4


# Two rounds of 3 + 4 tokens and one from the prompt: 8 before the cut, which falls in the last round's 4.
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"emitted": 9, "budget": 9}, "the rounds give 4 to 8"),
        ({"emitted": 3, "budget": 3}, "the rounds give 4 to 8"),
        ({"emitted": 8, "budget": 7, "stop": "eos"}, "of a budget of 7"),
        ({"emitted": 7, "budget": 8}, "stopped by the budget of 8 after 7"),
        ({"emitted": 8, "budget": 8, "stop": "length"}, "the budget is reached"),
        ({"emitted": 8, "budget": 8, "stop": "tired"}, "'budget', 'eos' or 'length'"),
        ({"emitted": 8, "budget": 8, "prompt": ""}, "at least 1 character"),
    ],
)
def test_an_end_that_the_rounds_cannot_give_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        trace([2, 3], first_token=True, **changes)


@pytest.mark.parametrize("emitted", [4, 5, 8])
def test_the_cut_falls_anywhere_in_the_last_round(emitted: int) -> None:
    assert trace([2, 3], first_token=True, emitted=emitted, budget=emitted).emitted == emitted
    assert trace([2, 3], first_token=True, emitted=emitted, budget=8, stop="eos").emitted == emitted


def test_an_answer_of_the_prompts_own_token_has_no_round() -> None:
    one = trace([], first_token=True, emitted=1, budget=64, stop="eos")
    assert (one.passes, one.produced) == (0, 1)
    with pytest.raises(ValidationError, match="the rounds give 0 to 0"):
        trace([], first_token=False, emitted=1, budget=64, stop="eos")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"offered": 49}, "50 of 49 offered"),
        ({"passes": 12, "by_position": None}, "64 tokens emitted, but the rounds give"),
        ({"offered": 12, "accepted": 12, "by_position": None, "emitted": 26, "budget": 26}, "12 drafts offered in 13"),
        (
            {"offered": 0, "accepted": 0, "passes": 0, "by_position": None, "emitted": 0, "stop": "eos"},
            "the rounds give 1 to 1",
        ),
        ({"undrafted": 14, "by_position": None}, "14 of 13 rounds without"),
        ({"undrafted": 13, "by_position": None}, "52 drafts offered in 0 rounds"),
        ({"by_position": (13, 13, 12, 11)}, "sum to 49, not 50"),
        ({"by_position": (14, 13, 12, 11)}, r"more often than an earlier one: \[13, 14"),
        ({"by_position": (13, 12, 13, 12)}, r"more often than an earlier one: \[13, 13, 12, 13"),
    ],
)
def test_counters_that_contradict_each_other_are_refused(changes: dict[str, Any], sentence: str) -> None:
    counters()
    with pytest.raises(ValidationError, match=sentence):
        counters(**changes)


@pytest.mark.parametrize(
    ("answers", "changes", "sentence"),
    [
        ((trace([4, 4]),), {"route": "counters"}, "a Trace on the counters route"),
        ((counters(),), {"route": "token-exact"}, "a Counters on the token-exact route"),
        ((trace([4, 4]),), {"budget": 10}, "budget 9, the regime's is 10"),
        ((trace([4, 4]),), {"n_max": 3}, "4 drafts offered, more than n_max 3"),
        ((counters(by_position=None),), {"route": "counters", "n_max": 3}, "52 drafts offered, more than n_max 3"),
        ((counters(by_position=(13, 13, 12, 11, 1)),), {"route": "counters"}, "more than n_max 4"),
        (
            (counters(passes=14, undrafted=1, offered=53),),
            {"route": "counters"},
            "53 drafts offered, more than n_max 4",
        ),
        ((counters(passes=19),), {"route": "counters"}, "the rounds are miscounted"),
    ],
)
def test_a_record_is_of_one_regime(answers: Any, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        acceptance(*answers, **changes)


def test_the_neighbours_of_these_refusals_are_records() -> None:
    acceptance(trace([4, 4]))
    acceptance(counters(), route="counters")
    acceptance(counters(passes=18), route="counters")
    acceptance(counters(passes=14, undrafted=1, offered=52), route="counters")
    counters(offered=13, accepted=12, by_position=None, emitted=26, budget=26)


def test_a_record_without_an_answer_is_none() -> None:
    with pytest.raises(ValidationError, match="no answer"):
        Acceptance(regime=regime(), answers=())


@pytest.mark.parametrize("record", [pard(), acceptance(counters(), route="counters")], ids=["traces", "counters"])
def test_a_record_survives_json(record: Acceptance) -> None:
    assert Acceptance.from_json(record.to_json()) == record


def test_json_holds_the_rounds_and_figures_follow_what_it_says() -> None:
    raw = json.loads(pard().to_json())
    assert set(raw) == {"regime", "answers"}
    assert set(raw["answers"][0]) == {"prompt", "budget", "emitted", "stop", "first_token", "rounds"}
    assert [each["accepted"] for each in raw["answers"][0]["rounds"]] == PARD
    raw["answers"][0]["rounds"][0]["accepted"] = 3
    raw["answers"][0]["rounds"][1]["accepted"] = 2
    changed = Acceptance.from_json(json.dumps(raw).encode())
    assert figure(Definition.ACCEPTED_PER_OFFERED, changed).counts == (45, 84)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("answers", 0, "rounds", 0, "accepted"), 5),
        (("answers", 0, "rounds", 0, "accepted"), "4"),
        (("answers", 0, "tokens_per_round"), 9.9),
        (("regime", "budget"), 63),
        (("regime", "seed"), 1.5),
    ],
)
def test_a_spoilt_record_is_refused(path: tuple[Any, ...], value: object) -> None:
    raw = json.loads(pard().to_json())
    place = raw
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(Refused) as refused:
        Acceptance.from_json(json.dumps(raw).encode())
    assert {finding.code for finding in refused.value.refusals} == {"speculation.record_invalid"}


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(Refused, match="Invalid JSON"):
        Acceptance.from_json(b"{")
