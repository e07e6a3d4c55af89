"""index.html as text: each drafter's newest verdict, figures with their interval and regime, outcomes in words."""

import re
from datetime import timedelta
from typing import Any

import pytest
from jinja2 import UndefinedError

from draftmill.reports.catalogue_page import catalogue_page, parameters
from draftmill.reports.template import render
from draftmill.store.index import Accepted, Measurement, Row, Span, index_of
from draftmill.store.index_report import measurement_of
from tests.store.drafters import START, refused_row
from tests.support import measured
from tests.support.page import Page


def page(*rows: Row) -> str:
    return catalogue_page(
        index_of(rows), "ab" * 32, {(row.kind, row.entry): f"models/{row.entry}/index.html" for row in rows}
    )


def words(*rows: Row) -> str:
    return Page(page(*rows)).words


def passed(*measurements: Measurement, **changes: Any) -> Row:
    return refused_row("amd/PARD", family="PARD", verdict="pass", reason=None, measurements=measurements, **changes)


def speed(record: Any = None, **changes: Any) -> Measurement:
    found = measurement_of(record or measured.speed(), "reports/measure/x/report.json")
    return found.model_copy(update=changes)


def test_a_ratio_has_its_interval_its_word_and_its_regime() -> None:
    found = words(passed(speed(regime="0123456789" + "f" * 54)))
    assert "Speed on cpu" in found
    assert "1.51x [1.42, 1.58] faster, regime 01234567 " in found


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (measured.silent(), "did not speculate"),
        (measured.too_wide(), "no verdict interval too wide"),
        (measured.too_busy(), "no verdict machine too busy"),
    ],
)
def test_an_outcome_without_a_ratio_is_said_and_has_no_figure(record: Any, said: str) -> None:
    found = words(passed(speed(record)))
    assert said in found
    assert not re.search(r"\d\.\d\dx", found.partition("How to read it")[0])


def test_a_draft_that_changes_the_text_says_so_before_its_ratio() -> None:
    text = page(passed(speed(measured.diverged("clear gap"))))
    assert re.search(r'tag bad">diverged: clear gap</span>\s*<b class="t-bad">1\.51x', text)


def test_each_device_has_a_column_and_the_newest_run_on_it_counts() -> None:
    old = speed(report="reports/measure/a/report.json", started="2026-01-01")
    new = speed(measured.slower(), report="reports/measure/b/report.json", started="2026-01-02")
    other = speed(report="reports/measure/c/report.json", device="xdna2")
    text = page(passed(new, old, other))
    assert re.findall(r'data-device="(\w+)"', text) == ["cpu", "xdna2"]
    assert "1 older" in text
    assert 'href="reports/measure/b/report.html"' in text
    assert 'href="reports/measure/a/report.html"' not in text


def test_acceptance_is_by_kind_with_the_interval_where_there_is_one() -> None:
    counts = {"accepted": 30, "offered": 40, "rounds": 20}
    span = Span(low=0.601, high=0.9, level=0.95, prompts=9)
    kinds = (Accepted(kind=None, **counts), Accepted(kind="code", **counts, span=span), Accepted(kind="chat", **counts))
    found = words(passed(speed(acceptance=kinds)))
    assert "code 75.0 % [60.1, 90.0] chat 75.0 % cpu, regime" in found
    assert "too few prompts" not in found
    assert "too few prompts for an interval" in words(passed(speed(acceptance=kinds[::2])))


def test_only_the_newest_verdict_of_a_drafter_is_in_the_table() -> None:
    old = passed(created=START)
    new = refused_row("amd/PARD", created=START + timedelta(days=1), recipe="cd" * 32, commit="ab" * 20)
    found = words(old, new)
    assert "1 known 1 refused" in found
    assert found.count("amd/PARD") == 1


def test_an_empty_store_says_how_it_is_filled() -> None:
    assert "Nothing is published here yet" in words()
    assert "<table" not in page()


def test_a_size_is_worth_its_parameters() -> None:
    assert [parameters(size) for size in ("0.6B", "135M", "6.4m", "?", None)] == [6e8, 1.35e8, 6.4e6, None, None]


def test_a_value_that_a_template_misses_is_an_error_and_no_gap() -> None:
    with pytest.raises(UndefinedError):
        render("gate.html", title="x")
