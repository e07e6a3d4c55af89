"""The pages in a real browser: what a person sees and can do, and that nothing in them comes from elsewhere or runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill.reports.catalogue_page import catalogue_page
from draftmill.reports.measurement_files import write_report
from draftmill.store.index import index_of
from draftmill.store.local import LocalStore
from tests.reports.showcase import BOLT, GUMIHO, HOSTILE_NAME, OPEN, SILENT, TINY, write_showcase
from tests.store.drafters import refused_row
from tests.support import measured
from tests.support.browser import Browser, Tab, open_browser

Open = Callable[..., Tab]
NAMES = "[...document.querySelectorAll('#drafters tbody th')].map(e => e.firstElementChild.textContent)"
SORTED = "[...document.querySelectorAll('#drafters thead th')].map(e => e.getAttribute('aria-sort'))"
PHONE = 390


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    return write_showcase(tmp_path_factory.mktemp("showcase"))


@pytest.fixture(scope="module")
def pages(store: LocalStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page there is, with strangers' text in it."""
    hostile = tmp_path_factory.mktemp("hostile")
    write_report(hostile, measured.hostile())
    return {
        "index": store.root / "index.html",
        "drafter": store.root / f"models/{TINY}/index.html",
        "refused": store.root / f"models/{GUMIHO}/index.html",
        "hostile": store.root / "models/x/Hostile/index.html",
        "package": store.root / f"packages/{BOLT}/index.html",
        "gate": next((store.root / f"packages/{BOLT}").glob("*/report.html")),
        "measurement": store.root / "reports/measure/faster/report.html",
        "hostile measurement": hostile / "report.html",
    }


PAGES = ["index", "drafter", "refused", "hostile", "package", "gate", "measurement", "hostile measurement"]


@pytest.fixture
def show(browser: Browser, pages: dict[str, Path]) -> Iterator[Open]:
    tabs = []

    def open_page(name: str = "index", fragment: str = "") -> Tab:
        tabs.append(Tab(browser))
        return tabs[-1].open(pages[name].as_uri() + fragment)

    yield open_page
    for tab in tabs:
        tab.close()


@dataclass(frozen=True)
class Visit:
    """What one look at a page showed; contrasts: in the light, in the dark, as `CONTRAST` gives them."""

    requests: list[str]
    problems: list[str]
    title: str
    scripts: int
    loads: int
    width_on_a_phone: int
    contrasts: list[Any]


@pytest.fixture(scope="module")
def visits(browser: Browser, pages: dict[str, Path]) -> dict[str, Visit]:
    return {name: visit(browser, path) for name, path in pages.items()}


def visit(browser: Browser, path: Path) -> Visit:
    tab = Tab(browser).open(path.as_uri())
    contrasts = []
    for dark in (False, True):
        tab.darken(dark)
        contrasts.append(tab.run(CONTRAST))
    tab.resize(PHONE, 800)
    found = Visit(
        requests=tab.requests,
        problems=tab.problems,
        title=tab.run("document.title"),
        scripts=tab.run("document.querySelectorAll('script').length"),
        loads=tab.run("document.querySelectorAll('img, iframe, object, embed, link').length"),
        width_on_a_phone=tab.run("document.documentElement.scrollWidth"),
        contrasts=contrasts,
    )
    tab.close()
    return found


CONTRAST = """(() => {
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.endsWith(', 0)')) return c; } return 'rgb(255, 255, 255)'; };
  const shown = [...document.querySelectorAll('main :not(svg *):not(svg)')].filter(e => e.checkVisibility()
    && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const ratios = shown.map(e => { const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 80)]; });
  return [ratios.length, ...ratios.sort((a, b) => a[0] - b[0])[0], light(behind(document.body))]; })()"""
"""How many texts there are, the least contrast of one with what is behind it (WCAG 2.2) and which one that is, and
the luminance of the paper."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_but_itself_and_runs_without_an_error(visits: dict[str, Visit], name: str) -> None:
    found = visits[name]
    assert (len(found.requests), found.problems, found.loads) == (1, [], 0)
    assert found.scripts == (1 if name == "index" else 0)
    assert "owned" not in found.title


@pytest.mark.parametrize("name", PAGES)
def test_on_a_phone_nothing_is_wider_than_the_screen(visits: dict[str, Visit], name: str) -> None:
    assert visits[name].width_on_a_phone == PHONE


@pytest.mark.parametrize("name", PAGES)
def test_text_is_legible_on_light_and_on_dark_paper(visits: dict[str, Visit], name: str) -> None:
    """4.5 to 1 is WCAG 2.2, 1.4.3, level AA."""
    papers = []
    for count, worst, where, paper in visits[name].contrasts:
        assert count > 10
        assert worst >= 4.5, where
        papers.append(paper)
    light, dark = papers
    assert light > 0.9
    assert dark < 0.1


def test_a_click_sorts_and_a_second_one_turns_it_round(show: Open) -> None:
    tab = show()
    # By name, whatever the case: without a click.
    assert tab.run(NAMES) == [GUMIHO, OPEN, SILENT, TINY, BOLT, HOSTILE_NAME, "x/Hostile"]
    assert tab.run(SORTED)[:2] == ["ascending", "none"]
    tab.click("th[data-key=verdict] button")
    assert tab.run(NAMES)[0] == OPEN  # no verdict, pass, refused
    assert tab.run(NAMES)[1:3] == [SILENT, TINY]
    assert tab.run(SORTED)[:4] == ["none", "none", "none", "ascending"]
    tab.click("th[data-key=verdict] button")
    assert tab.run(NAMES)[-1] == OPEN
    assert tab.run(SORTED)[3] == "descending"


def test_the_keyboard_sorts_as_a_click_does(show: Open) -> None:
    tab = show()
    tab.run("document.querySelector('th[data-key=family] button').focus()")
    tab.press("Enter", "\r")
    assert tab.run(SORTED)[1] == "ascending"
    # What has no value is last either way, and families that are equal keep their order.
    assert tab.run(NAMES)[:3] == [HOSTILE_NAME, "x/Hostile", BOLT]
    tab.press("Enter", "\r")
    assert tab.run(NAMES)[:3] == [OPEN, SILENT, TINY]


def test_a_figure_sorts_by_its_value_with_the_outcomes_without_one_last(show: Open) -> None:
    tab = show()
    tab.click("th[data-key='ratio:cpu'] button")
    assert tab.run(NAMES)[0] == TINY
    assert SILENT in tab.run(NAMES)[1:]
    tab.click("th[data-key='ratio:cpu'] button")
    assert tab.run(NAMES)[0] == TINY


def test_figures_of_several_regimes_in_one_column_are_said_not_to_compare(show: Open) -> None:
    tab = show("index", "#sort=-acceptance")
    assert "they do not compare" not in tab.run("status.textContent || document.getElementById('status').textContent")
    # The two drafters' records have one regime; with another one in the column it is said.
    tab.run("document.querySelector('td.a').dataset.r = '00000000'; dispatchEvent(new Event('hashchange'))")
    assert "of 2 regimes: sorted to find, they do not compare" in tab.run(
        "document.getElementById('status').textContent"
    )


def test_filters_leave_what_fits_and_the_address_keeps_them(show: Open) -> None:
    tab = show()
    tab.run("(e => {e.value = 'refused'; e.dispatchEvent(new Event('input'))})(document.getElementById('verdict'))")
    assert set(tab.run(NAMES)) == {GUMIHO, BOLT, HOSTILE_NAME, "x/Hostile"}
    assert tab.run("document.getElementById('status').textContent") == "4 of 7 drafters"
    tab.run("document.getElementById('q').focus()")
    for letter in "npu2":
        tab.press(letter, letter)
    assert tab.run(NAMES) == [BOLT]
    fragment = tab.run("location.hash")
    assert fragment == "#q=npu2&verdict=refused"
    assert show("index", fragment).run(NAMES) == [BOLT]
    assert set(show("index", "#device=cpu").run(NAMES)) == {TINY, SILENT}
    assert show("index", "#q=nothing+like+it").run(NAMES) == []


def test_a_long_table_shows_its_first_rows_and_sorts_and_finds_among_all(browser: Browser, tmp_path: Path) -> None:
    index = index_of(refused_row(f"amd/D{number:03}") for number in range(300))
    place = tmp_path / "index.html"
    place.write_text(catalogue_page(index, "0" * 64, {}))
    tab = Tab(browser).open(place.as_uri())
    assert len(tab.run(NAMES)) == 250
    assert tab.run("document.getElementById('status').textContent") == "300 drafters, the first 250 shown"
    tab.click("th[data-key=name] button")
    assert tab.run(NAMES)[0] == "amd/D299"
    tab.click("#more button")
    assert (len(tab.run(NAMES)), tab.run("document.getElementById('more').checkVisibility()")) == (300, False)
    tab.close()
    found = Tab(browser).open(place.as_uri() + "#q=d299")
    assert found.run(NAMES) == ["amd/D299"]
    found.close()


def test_without_scripts_it_is_a_plain_table(browser: Browser, pages: dict[str, Path]) -> None:
    tab = Tab(browser)
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(pages["index"].as_uri())
    assert len(tab.run(NAMES)) == 7
    assert tab.run("document.querySelectorAll('th button').length") == 0
    assert tab.run("document.getElementById('controls').checkVisibility()") is False


def test_every_link_leads_to_something_that_is_there(show: Open, store: LocalStore) -> None:
    """From page to page, as far as they lead inside the store."""
    seen, left = set(), [(store.root / "index.html").as_uri()]
    tab = show()
    while left:
        address = left.pop()
        path = Path(address.removeprefix("file://"))
        assert path.is_relative_to(store.root)
        assert path.is_file(), address
        seen.add(address)
        if path.suffix == ".html":
            found = tab.open(address).run("[...document.links].map(e => e.href.split('#')[0])")
            left += [each for each in set(found) if each not in seen and each not in left]
    assert {Path(each).name for each in seen} >= {
        "index.html",
        "report.html",
        "manifest.json",
        "provenance.intoto.json",
    }


def test_the_policy_of_a_page_turns_away_what_is_not_its_own(show: Open) -> None:
    """The negative control of all this: put in by force, it neither loads nor runs."""
    tab = show()
    tab.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://127.0.0.1:9/x.png\">');"
        "const s = document.createElement('script'); s.textContent = 'document.title = \"owned\"';"
        "const a = document.createElement('style'); a.textContent = 'body{display:none}'; document.body.append(s, a)"
    )
    assert tab.run("document.title") == "Drafters"
    assert tab.run("document.querySelector('h1').checkVisibility()")
    problems = " ".join(tab.problems)
    assert problems.count("Content Security Policy") >= 3
