"""When two figures may be compared."""

import pytest
from pydantic import ValidationError

from draftmill.speculation.regime import Regime, comparable
from tests.speculation.records import regime

OTHER = {
    "drafter": "0" * 64,
    "target": "0" * 64,
    "route": "counters",
    "spec_type": "draft-dflash",
    "n_max": 8,
    "n_min": 1,
    "p_min": 0.75,
    "fallback": 0.2,
    "block": 8,
    "budget": 65,
    "prompts": "0" * 64,
    "temperature": 0.5,
    "seed": None,
    "backend": "hrx",
    "device": "HRX0",
    "threads": 4,
    "target_kv": "q8_0/q8_0",
    "drafter_kv": "q4_0/q4_0",
    "build": "b11669",
    "kernel": "zen4",
}


def test_a_regime_compares_with_itself() -> None:
    assert comparable(regime(), regime()) == ()
    assert regime().digest == regime().digest


@pytest.mark.parametrize("field", sorted(OTHER))
def test_each_member_alone_makes_another_regime(field: str) -> None:
    # A temperature is only possible on the counters route, so that both sides take it.
    base = {"route": "counters"} if field == "temperature" else {}
    one, other = regime(**base), regime(**(base | {field: OTHER[field]}))
    (finding,) = comparable(one, other)
    assert (finding.code, finding.where) == ("speculation.regime_differs", field)
    assert (finding.measured, finding.expected) == (getattr(one, field), OTHER[field])
    assert one.digest != other.digest


def test_every_member_is_covered_and_has_no_default() -> None:
    assert sorted(OTHER) == sorted(Regime.model_fields)
    assert all(member.is_required() for member in Regime.model_fields.values())


def test_all_differences_are_named_in_order() -> None:
    found = comparable(regime(), regime(kernel="zen4", drafter="0" * 64))
    assert [finding.where for finding in found] == ["drafter", "kernel"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"temperature": 0.7}, "temperature must be 0"),
        ({"n_min": 5}, "n_min 5 is above n_max 4"),
        ({"drafter": "PARD"}, "String should match pattern"),
        ({"p_min": 1.5}, "less than or equal to 1"),
        ({"p_min": float("nan")}, "finite"),
        ({"threads": True}, "valid integer"),
        ({"kernel": ""}, "at least 1 character"),
        ({"route": "guess"}, "'counters' or 'token-exact'"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_an_impossible_regime_is_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        regime(**changes)


def test_greedy_token_exact_and_sampled_counters_are_possible() -> None:
    regime(route="counters", temperature=0.7)
    regime(n_min=4)
    regime(n_min=None, p_min=None, threads=None)
