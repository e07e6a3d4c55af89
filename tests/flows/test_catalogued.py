"""An order for a repository that the worker's catalogue knows."""

from pathlib import Path

import pytest

from draftmill.outcome import BadConfiguration
from flows.catalogued import catalogued
from flows.convert_model import convert_model
from flows.order import Order

CATALOGUE = """
families:
  PARD: {route: gguf, names: [acme/*], signs: [{config: {spd_type: pard}}]}
drafters:
  acme/Draft: {derived_from: [acme/Base], trained_for: [acme/Target], upstream: acme/Weights}
licences:
  llama3.2: {files: [LICENSE]}
"""


@pytest.fixture(autouse=True)
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "catalogue.yaml"
    path.write_text(CATALOGUE)
    (tmp_path / "LICENSE").write_text("its text")
    monkeypatch.setenv("DRAFTMILL_CATALOGUE", str(path))
    return path


def test_an_order_carries_its_rows_lineage_and_the_texts_of_licences(catalogue: Path) -> None:
    given = catalogued(Order(ref="acme/Draft@v1", derived_from=("acme/Other",), licence_texts={"gemma": ()}))
    assert (given.derived_from, given.trained_for) == (("acme/Other", "acme/Base"), ("acme/Target",))
    assert given.upstream == "acme/Weights"
    assert given.licence_texts == {"llama3.2": (catalogue.parent / "LICENSE",), "gemma": ()}


def test_the_orders_own_word_comes_first_and_twice_is_once() -> None:
    asked = Order(ref="acme/Draft", upstream="acme/Mine", trained_for=("acme/Target",))
    given = catalogued(asked)
    assert (given.upstream, given.trained_for) == ("acme/Mine", ("acme/Target",))
    assert catalogued(given) == given


@pytest.mark.parametrize("ref", ["acme/Unknown", "/"])
def test_what_no_row_names_gets_the_texts_alone(ref: str) -> None:
    given = catalogued(Order(ref=ref))
    assert (given.derived_from, given.trained_for, given.upstream) == ((), (), None)
    assert set(given.licence_texts) == {"llama3.2"}


def test_an_order_without_a_catalogue_is_as_it_was() -> None:
    assert catalogued(Order(ref="acme/Draft", catalogue=None)) == Order(ref="acme/Draft", catalogue=None)


def test_the_flow_reads_the_catalogue_of_whoever_runs_it(catalogue: Path, tmp_path: Path) -> None:
    catalogue.write_text("drafters:\n  acme/Draft: {donor: 3, wrong: here}\n")
    with pytest.raises(BadConfiguration, match=r"line 2, drafters\.acme/Draft\.wrong"):
        convert_model.fn({"ref": "acme/Draft", "work": str(tmp_path / "work")})
