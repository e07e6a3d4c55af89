"""The self-test: every check of the gate has a control that it alone catches, and a gap in that fails the run."""

from dataclasses import replace
from functools import cache

import pytest

from draftmill.dflash.gate_table import BY_ID
from draftmill.dflash.selftest import Row, SelfTest, run_selftest
from draftmill.dflash.selftest_controls import BASES, CONTROLS


@cache
def whole() -> SelfTest:
    return run_selftest()


@pytest.mark.parametrize("number", range(len(CONTROLS)), ids=[f"{each.check}: {each.what}" for each in CONTROLS])
def test_the_control_is_caught_by_its_check_alone(number: int) -> None:
    row = whole().rows[number]
    assert row.caught == (row.check,)


def test_every_check_has_a_control_and_every_sound_package_passes() -> None:
    assert {each.check for each in CONTROLS} == BY_ID.keys()
    assert whole().uncontrolled == ()
    assert whole().unsound == {}
    assert whole().passed


def test_checks_of_tiles_have_a_control_in_both_generations() -> None:
    shown = {(each.check, each.base[: len("generation 1")]) for each in CONTROLS}
    for check in ("packed.not_half_float", "scales.finite", "scales.positive", "minimums.finite", "minimums.band"):
        for generation in (1, 2):
            assert (check, f"generation {generation}") in shown


def test_a_refused_control_is_refused_and_what_only_withholds_gives_no_verdict() -> None:
    verdicts = {row.check: row.verdict for row in whole().rows}
    assert verdicts.pop("files.settled") == "no verdict"
    assert verdicts.pop("config.layer_ids_base") == "pass"
    assert set(verdicts.values()) == {"refused"}


def test_a_check_without_a_control_fails_the_run() -> None:
    result = run_selftest(tuple(each for each in CONTROLS if each.check == "config.model_type"))
    assert not result.passed
    assert set(result.uncontrolled) == BY_ID.keys() - {"config.model_type"}


def test_a_control_that_another_check_catches_fails_the_run() -> None:
    by_check = {each.check: each for each in CONTROLS}
    wrong = replace(by_check["config.model_type"], check="config.keys")
    (row,) = run_selftest((wrong,)).rows
    assert row.caught == ("config.model_type",)
    assert not row.sound


def test_a_control_that_two_checks_catch_fails_the_run() -> None:
    zero = next(each for each in CONTROLS if each.check == "scales.positive")
    absent = next(each for each in CONTROLS if each.check == "tensors.present")
    both = replace(zero, change=lambda folder: (zero.change(folder), absent.change(folder)))
    (row,) = run_selftest((both,)).rows
    assert set(row.caught) == {"scales.positive", "tensors.present"}
    assert not row.sound


def test_a_control_that_nothing_catches_fails_the_run() -> None:
    blunt = replace(CONTROLS[0], change=lambda folder: None, base=next(iter(BASES)))
    (row,) = run_selftest((blunt,)).rows
    assert row == Row(CONTROLS[0].check, CONTROLS[0].what, row.base, (), "pass")
    assert not row.sound
