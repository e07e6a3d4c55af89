"""Plots: what is drawn stands where its value is, as XML that needs nothing from elsewhere."""

import re
from xml.etree import ElementTree

import pytest

from draftmill.measurement.statistics import Rule, decide
from draftmill.reports.bars_plot import accepted_plot, positions_plot
from draftmill.reports.document import Plot
from draftmill.reports.paired_plot import PairOfTimes, paired_plot
from draftmill.reports.plot import LogScale
from draftmill.reports.rounds_plot import rounds_plot
from draftmill.speculation.figures import compute_figures
from draftmill.speculation.trace import Acceptance, Trace
from tests.speculation.records import PARD, acceptance, counters, pard, regime, trace

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(plot.svg)


def of_class(plot: Plot, tag: str, kind: str) -> list[dict[str, str]]:
    return [each.attrib for each in drawn(plot).iter(SVG + tag) if each.get("class") == kind]


def texts(plot: Plot) -> list[str]:
    return [each.text or "" for each in drawn(plot).iter(SVG + "text")]


def pair(alone: float, with_draft: float, *, alone_first: bool = True) -> PairOfTimes:
    return PairOfTimes(alone, with_draft, alone_first)


def paired(pairs: list[PairOfTimes]) -> Plot:
    return paired_plot(pairs, decide([each.ratio for each in pairs], Rule()))


def positions() -> Plot:
    figures = compute_figures(pard())
    found = positions_plot(figures.positions, figures.conditional)
    assert found
    return found


PLOTS = [
    paired([pair(0.06, 0.04)] * 6),
    positions(),
    accepted_plot((8, 2, 1, 0, 10)),
    rounds_plot([trace(PARD, prompt="<sky> \u202e & \x1b")]),
]


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_each_plot_names_itself_and_says_what_it_shows(plot: Plot) -> None:
    svg = drawn(plot)
    title, said = svg.find(SVG + "title"), svg.find(SVG + "desc")
    assert title is not None and said is not None
    assert title.text == plot.title
    assert said.text
    assert svg.get("role") == "img"
    assert svg.get("aria-labelledby") == f"{title.get('id')} {said.get('id')}"


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_no_plot_has_a_script_or_anything_from_elsewhere(plot: Plot) -> None:
    without_namespace = plot.svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"://|<script|href|url\(|@import|\bon\w+=", without_namespace)
    assert "prefers-color-scheme:dark" in plot.svg


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_everything_lies_inside_the_frame(plot: Plot) -> None:
    svg = drawn(plot)
    width, height = (float(each) for each in svg.attrib["viewBox"].split()[2:])
    for each in svg.iter():
        for name, most in (("x", width), ("cx", width), ("x1", width), ("y", height), ("cy", height), ("y1", height)):
            assert 0 <= float(each.get(name, 0)) <= most, each.attrib


def test_equal_ratios_are_equal_distances() -> None:
    scale = LogScale(1, 100, 0, 200)
    assert [scale.at(value) for value in (1, 10, 100)] == [0, 100, 200]


def test_ticks_are_round_and_inside() -> None:
    assert LogScale(0.9, 110, 0, 1).ticks() == pytest.approx([1, 10, 100])
    assert LogScale(0.9, 5.5, 0, 1).ticks() == pytest.approx([1, 2, 5])
    assert LogScale(0.0402, 0.0478, 0, 1).ticks() == pytest.approx([0.042, 0.044, 0.046])


def test_one_disturbed_sample_does_not_press_the_others_together() -> None:
    usual = [1.0, 1.1] * 20
    scale = LogScale.around([*usual, 50.0], 0, 100)
    # The middle nine tenths are 1.0 to 1.1: once their span farther is 1.21, and 2 % of margin.
    assert scale.high == pytest.approx(1.1 * 1.1 * 1.02)
    assert not scale.holds(50.0)
    assert scale.at(50.0) == 100
    assert LogScale.around([*usual, 50.0], 0, 100, always=(60.0,)).holds(50.0)


def test_few_samples_are_all_on_the_scale() -> None:
    assert LogScale.around([1.0, 1.1, 50.0], 0, 100).holds(50.0)


def test_a_pair_is_two_marks_on_one_line_and_the_second_measured_is_hollow() -> None:
    plot = paired([pair(0.06, 0.03), pair(0.06, 0.03, alone_first=False)])
    joined = of_class(plot, "line", "join")
    assert len(joined) == 2
    # The first two marks of each kind are the legend's.
    filled, hollow = of_class(plot, "circle", "one")[1:], of_class(plot, "circle", "one hollow")[1:]
    assert [mark["cx"] for mark in filled] == [joined[0]["x1"]]
    assert [mark["cx"] for mark in hollow] == [joined[1]["x1"]]
    assert filled[0]["cy"] == joined[0]["y1"]
    assert float(joined[0]["y2"]) > float(joined[0]["y1"]), "the faster one stands lower"


def test_the_band_is_the_interval_and_the_line_the_median() -> None:
    ratios = [1.5, 1.4, 1.6, 1.45, 1.55, 1.48]
    plot = paired([pair(0.06, 0.06 / ratio) for ratio in ratios])
    marks = [float(mark["cy"]) for mark in of_class(plot, "circle", "two")]
    (band,) = of_class(plot, "rect", "band")
    (median,) = of_class(plot, "line", "median")
    # Six pairs: the interval is the whole range. Median of 1.48 and 1.50.
    assert float(band["y"]) == pytest.approx(min(marks), abs=0.1)
    assert float(band["y"]) + float(band["height"]) == pytest.approx(max(marks), abs=0.1)
    assert marks[0] < float(median["y1"]) < marks[5]
    assert "median 1.490x, interval [1.400, 1.600]" in plot.said


def test_pairs_beyond_the_scale_are_hollow_and_counted() -> None:
    plot = paired([*[pair(0.06, 0.05), pair(0.06, 0.04)] * 15, pair(0.9, 0.01)])
    assert len(of_class(plot, "circle", "two hollow")) == 1
    assert "hollow: 1 beyond" in texts(plot)
    assert "ratios 1.200x to 90.000x" in plot.said


def test_bars_by_position_are_as_high_as_their_shares() -> None:
    """13, 11, 10 and 10 of 21 rounds; 13/21, 11/13, 10/11 and 10/10 where the one before was accepted."""
    plot = positions()
    whole = [float(bar["height"]) for bar in of_class(plot, "rect", "two flat")]
    given = [float(bar["height"]) for bar in of_class(plot, "rect", "one flat")]
    assert [height / given[3] for height in whole] == pytest.approx([13 / 21, 11 / 21, 10 / 21, 10 / 21], abs=2e-3)
    assert [height / given[3] for height in given] == pytest.approx([13 / 21, 11 / 13, 10 / 11, 1], abs=2e-3)
    assert plot.said.startswith("draft 1: 61.9 % of all rounds, 61.9 % where the one before it was accepted; draft 2: ")


def test_counters_have_no_bars_of_what_they_do_not_count() -> None:
    figures = compute_figures(acceptance(counters(), route="counters"))
    plot = positions_plot(figures.positions, figures.conditional)
    assert plot
    assert of_class(plot, "rect", "one flat") == []
    # 13, 13, 12 and 12 of 13 rounds.
    assert [text for text in texts(plot) if text in ("100", "92")] == ["100", "100", "92", "92"]
    bare = compute_figures(acceptance(counters(by_position=None), route="counters"))
    assert positions_plot(bare.positions, bare.conditional) is None


def test_the_histogram_has_a_bar_for_every_count_that_came() -> None:
    plot = accepted_plot((8, 2, 1, 0, 10))
    heights = [float(bar["height"]) for bar in of_class(plot, "rect", "two flat")]
    assert [height / heights[4] for height in heights] == pytest.approx([0.8, 0.2, 0.1, 0, 1], abs=2e-3)
    assert plot.said == (
        "8 rounds accepted 0; 2 rounds accepted 1; 1 rounds accepted 2; 0 rounds accepted 3; 10 rounds accepted 4"
    )


def strip(*traces: Trace) -> tuple[Plot, list[float]]:
    """The plot, and the darkness of its cells after the five of the legend."""
    plot = rounds_plot(traces)
    return plot, [float(cell["fill-opacity"]) for cell in of_class(plot, "rect", "two flat")[5:]]


def test_the_strip_has_a_cell_a_round_as_dark_as_what_was_accepted() -> None:
    plot, cells = strip(trace(PARD))
    palest, darkest = 0.12, 1.0
    assert len(cells) == 21
    assert cells == pytest.approx([palest + (darkest - palest) * accepted / 4 for accepted in PARD], abs=6e-3)
    assert [text for text in texts(plot) if text.isdigit()] == [str(accepted) for accepted in PARD]
    assert "sky: 4 0 4 4 1 2 4 4 4 0 0 0 4 0 0 4 0 4 0 1 4" in plot.said
    assert "44/84 in 21 rounds" in texts(plot)


def test_a_round_without_a_draft_has_no_cell_and_a_row_is_an_answer() -> None:
    plot, cells = strip(trace([2, 0, 1], offered=[2, 0, 4]), trace([1], prompt="sort"))
    assert cells == pytest.approx([1.0, 0.12 + 0.88 / 4, 0.12 + 0.88 / 4], abs=6e-3)
    assert len(of_class(plot, "rect", "cell")) == 1
    assert {"sky", "sort"} <= set(texts(plot))


def test_a_record_without_a_round_is_still_drawn() -> None:
    empty = Trace(prompt="sky", budget=4, emitted=1, stop="eos", first_token=True, rounds=())
    plot, cells = strip(empty)
    assert cells == []
    assert "sky: no round" in plot.said
    assert Acceptance(regime=regime(budget=4), answers=(empty,))
