"""What index.json says after a run, where a drafter's name changed or its repository went and came back."""

from pathlib import Path

import pytest

from draftmill.catalogue.catalogue import load_catalogue
from draftmill.store.index import Row, read_index
from draftmill.store.local import LocalStore
from flows.catalogue_index import index_returned, index_rows
from flows.catalogue_order import CatalogueOrder
from flows.catalogue_planner import make_plan
from flows.catalogue_summary import RunRow
from tests.support.catalogue_hub import BORROWER, CATALOGUE, HEAD, PACKAGE, PLAIN, write_catalogue, write_head
from tests.support.catalogue_hub import write_package as add_package


class Place:
    """A store whose catalogue has two drafters that the hub does not have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = LocalStore(folder / "store")
        self.catalogue = write_catalogue(folder)
        write_head(folder / "hub")

    def run(self, only: str = "*") -> None:
        """As a run whose jobs refuse every drafter."""
        catalogue = load_catalogue(self.catalogue)
        hub, store = f"file://{self.folder}/hub", str(self.store.root)
        order = CatalogueOrder(
            catalogue=self.catalogue, only=only, hub=hub, store=store, work=self.folder / "work", runner="process"
        )
        ended = []
        for item in make_plan(order, catalogue, self.store).items:
            code = item.problem.code if item.problem else "a.b"
            refusal = {"code": code, "where": item.repo, "measured": 1, "expected": 2, "sentence": "It is not."}
            row = RunRow(
                repo=item.repo,
                family=item.family or None,
                route=item.route or None,
                verdict="refused",
                ran=True,
                reason="",
                code=code,
                refusals=(refusal,),
            )
            ended.append((row, item))
        index_rows(self.store, ended, catalogue)

    def rows(self) -> dict[str, Row]:
        stored = read_index(self.store)
        return {row.entry: row for row in stored.index.rows} if stored else {}

    def has_page(self, entry: str, top: str = "models") -> bool:
        return (self.store.root / top / entry / "index.html").is_file()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_drafter_with_another_name_has_no_verdict_under_its_old_one(place: Place) -> None:
    place.run()
    assert place.has_page(HEAD)
    write_catalogue(place.folder, CATALOGUE.replace("{family: Gumiho}", "{family: Gumiho, publish_as: tiny/New}"))
    place.run(HEAD)
    rows = place.rows()
    assert (HEAD in rows, rows["tiny/New"].reason and rows["tiny/New"].reason.code) == (False, "a.b")
    assert PLAIN in rows  # of which this run knows nothing
    assert (place.has_page(HEAD), place.has_page("tiny/New"), place.has_page(PLAIN)) == (False, True, True)


def test_a_verdict_under_a_name_that_another_drafter_has_now_stays(place: Place) -> None:
    place.run()
    text = CATALOGUE.replace("{family: Gumiho}", "{family: Gumiho, publish_as: tiny/New}")
    write_catalogue(place.folder, text.replace("family: PARD-2\n", f"family: PARD-2\n    publish_as: {HEAD}\n"))
    place.run(HEAD)
    assert {HEAD, "tiny/New"} <= place.rows().keys()


def test_a_drafter_that_is_gone_has_a_row_until_it_is_back(place: Place) -> None:
    place.run()
    gone = place.rows()
    assert {entry for entry, row in gone.items() if row.reason and row.reason.code == "catalogue.gone"} == {
        PLAIN,
        BORROWER,
        PACKAGE,
    }
    assert (gone[PACKAGE].kind, gone[PACKAGE].family, gone[PACKAGE].route) == ("package", "DFlash", "gate")
    assert (gone[PLAIN].kind, gone[PLAIN].commit) == ("model", None)
    assert place.has_page(PACKAGE, "packages")
    # Back as it was: nothing runs.
    index_returned(place.store, [PLAIN, HEAD], load_catalogue(place.catalogue))
    assert place.rows().keys() == {HEAD, BORROWER, PACKAGE}
    assert not place.has_page(PLAIN)
    # Back and run again.
    add_package(place.folder / "hub")
    place.run("fast/*")
    reason = place.rows()[PACKAGE].reason
    stored = read_index(place.store)
    assert reason and reason.code == "a.b"
    assert stored and [row.entry for row in stored.index.rows].count(PACKAGE) == 1
