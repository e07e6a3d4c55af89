"""The report's files: whole, the same record when read back, and figures that come from it alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill.measurement.record import Accepted, Speed, load
from draftmill.measurement.speed_results import speed_result
from draftmill.outcome import Refused
from draftmill.reports.measurement_files import write_report
from draftmill.reports.measurement_json import report_json, results_json
from tests.support import measured

OUTCOMES = {**measured.SPEEDS, **measured.ACCEPTANCES, "an engine that does not count": measured.uncounted}


def changed(record: Speed | Accepted, change: Callable[[dict[str, Any]], None]) -> Speed | Accepted:
    value = json.loads(report_json(record))
    change(value)
    return load(json.dumps(value).encode())


@pytest.mark.parametrize("make", OUTCOMES.values(), ids=OUTCOMES)
def test_reading_a_report_back_gives_the_same_record_and_figures(make: Callable[[], Speed | Accepted]) -> None:
    record = make()
    read = load(report_json(record).encode())
    assert read == record
    assert results_json(read) == results_json(record)
    assert report_json(read) == report_json(record)


@pytest.mark.parametrize("beginning", {**measured.SPEEDS, **measured.ACCEPTANCES})
def test_every_outcome_has_its_sentence_for_other_readers(beginning: str) -> None:
    results = json.loads(report_json(OUTCOMES[beginning]()))["results"]
    assert results["sentence"].startswith(beginning)
    assert results["sentence"].startswith(results["word"]) or results["word"] == "measured"


def test_a_tampered_figure_changes_nothing() -> None:
    def tamper(value: dict[str, Any]) -> None:
        value["results"]["request"]["ratio"] = 9.0
        value["results"]["sentence"] = "faster, identical: 9.000x"

    record = measured.speed()
    assert results_json(changed(record, tamper)) == results_json(record)


def test_a_tampered_sample_changes_the_figure() -> None:
    """Of the ten ratios the 1.52 becomes 1.58 x 2: the middle two are then 1.50 and 1.53."""

    def tamper(value: dict[str, Any]) -> None:
        sample = next(
            each for each in value["record"]["samples"] if each["pair"] == 6 and each["arm"] == "target alone"
        )
        sample["wall_s"] *= 2

    record = changed(measured.speed(), tamper)
    assert isinstance(record, Speed)
    request = speed_result(record).request
    assert request and request.ratio == pytest.approx((1.50 + 1.53) / 2)


def test_a_tampered_round_changes_the_figure() -> None:
    def tamper(value: dict[str, Any]) -> None:
        answer = value["record"]["acceptance"]["answers"][0]
        answer["rounds"][1]["accepted"] = 4
        answer["stop"], answer["emitted"], answer["budget"] = "budget", 68, 68
        for regime in (value["record"]["regime"], value["record"]["acceptance"]["regime"]):
            regime["budget"] = 68

    found = results_json(changed(measured.token_exact(), tamper))
    # 44 + 4 of 84.
    assert found["sentence"].startswith("48 of 84 offered drafts accepted")
    assert found["figures"]["histogram"] == [7, 2, 1, 0, 11]


def test_the_figures_for_other_readers_are_the_known_ones() -> None:
    found = results_json(measured.token_exact())["figures"]
    assert (found["rounds"], found["accepted"], found["offered"]) == (21, 44, 84)
    assert found["histogram"] == [8, 2, 1, 0, 10]
    speed = results_json(measured.speed())
    assert speed["request"]["ratio"] == pytest.approx(1.51)
    assert speed["request"]["interval"] == pytest.approx({"low": 1.42, "high": 1.58})
    assert [kind["kind"] for kind in speed["kinds"]] == ["explanation", "code"]
    assert [cost["value"] for cost in speed["costs"]] == pytest.approx([63 / 13 / 1.51, 64 / 13 / 1.51])
    assert results_json(measured.silent())["request"] is None


def test_the_file_is_plain_ascii_with_a_list_of_tokens_on_one_line() -> None:
    text = report_json(measured.hostile())
    assert text.isascii()
    assert json.loads(text)["record"]["remarks"] == [measured.HOSTILE]
    listed = "[" + ", ".join(map(str, range(measured.TOKENS))) + "]"
    assert f'"tokens": {listed},\n' in text
    assert '"arguments": [\n' in text


def test_a_text_that_looks_like_a_list_of_numbers_is_left_alone() -> None:
    record = measured.speed(remarks=("[\n 1,\n  2 ]",))
    assert load(report_json(record).encode()).remarks == record.remarks


@pytest.mark.parametrize(
    ("make", "plots"),
    [
        (measured.speed, ["paired.svg", "positions.svg"]),
        (measured.uncounted, ["paired.svg"]),
        (measured.silent, []),
        (measured.token_exact, ["histogram.svg", "positions.svg", "rounds.svg"]),
        (measured.by_counters, ["positions.svg"]),
        (measured.silent_acceptance, []),
    ],
)
def test_a_folder_holds_the_report_and_its_plots_and_nothing_else(
    make: Callable[[], Speed | Accepted], plots: list[str], tmp_path: Path
) -> None:
    written = write_report(tmp_path / "new" / "out", make())
    names = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    assert names == sorted(["report.html", "report.json", "report.md", *plots])
    assert sorted(path.name for path in written) == names
    assert load((tmp_path / "new" / "out" / "report.json").read_bytes()) == make()
    page = (tmp_path / "new" / "out" / "report.html").read_text()
    markdown = (tmp_path / "new" / "out" / "report.md").read_text()
    for name in plots:
        svg = (tmp_path / "new" / "out" / name).read_text()
        assert svg.strip() in page
        assert f"({name})" in markdown


def test_a_record_without_partners_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    record = measured.speed()
    lonely = record.model_copy(update={"samples": record.samples[:-1]})
    with pytest.raises(Refused) as refused:
        write_report(tmp_path / "out", lonely)
    assert [each.code for each in refused.value.refusals] == ["measurement.samples_unpaired"]
    assert not (tmp_path / "out").exists()
