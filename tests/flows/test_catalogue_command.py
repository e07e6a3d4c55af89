"""What `draftmill catalogue` prints, and how it ends, where nothing has to run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flows.catalogue_command import app
from tests.support.catalogue_hub import HEAD, PACKAGE, write_catalogue, write_head, write_package


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_catalogue(tmp_path)
    write_package(tmp_path / "hub")
    write_head(tmp_path / "hub")
    return tmp_path


def run(place: Path, *arguments: str) -> Result:
    environment = {
        "DRAFTMILL_CATALOGUE": str(place / "catalogue.yaml"),
        "DRAFTMILL_STORE": str(place / "store"),
        "DRAFTMILL_WORK": str(place / "work"),
        "HF_ENDPOINT": f"file://{place}/hub",
        "COLUMNS": "200",
    }
    return CliRunner().invoke(app, list(arguments), env=environment)


def test_a_plan_is_a_table_with_what_it_would_cost(place: Path) -> None:
    result = run(place, "plan", "--only", "fast/*")
    assert result.exit_code == 0, result.output
    assert PACKAGE in result.stdout
    assert "no run before" in result.stdout
    size = sum(path.stat().st_size for path in (place / "hub" / PACKAGE).iterdir())
    assert f"1 to run: {size / 1e6:.1f} MB to fetch, about 0 s of jobs, and 1 of a kind that never ran" in result.stdout


def test_a_plan_as_json_has_the_same_and_more(place: Path) -> None:
    result = run(place, "plan", "--only", "*/Gumiho-*", "--json")
    (line,) = json.loads(result.stdout)["run"]
    assert (line["repo"], line["route"], line["reason"]) == (HEAD, "refuse", "no run before")
    assert (line["download_bytes"], line["seconds"]) == (0, 0.0)


def test_proposals_end_with_rows_to_take_over(place: Path) -> None:
    result = run(place, "discover", "--author", "tiny")
    assert result.exit_code == 0, result.output
    assert f"licence {HEAD}: its card says mit" in result.stdout
    assert "gone tiny/PARD-SmolLM2-1M" in result.stdout
    assert f"  {HEAD}:\n    family: Gumiho\n    licence: mit\n" in result.stdout
    assert (
        f"in the place of those that stand; added beside them they would be given twice:\n\n  # replaces the row {HEAD}"
        in (result.stdout)
    )
    assert {each["kind"] for each in json.loads(run(place, "discover", "--json").stdout)} == {"gone", "licence"}


@pytest.mark.parametrize("size", ["much", "12Gb/s", "-1GB", "0", ""])
def test_a_size_that_is_none_is_wrong_usage(place: Path, size: str) -> None:
    result = run(place, "run", "--memory", size)
    assert result.exit_code == 2
    assert not (place / "work").exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_an_empty_pattern_is_wrong_usage(place: Path, command: str) -> None:
    result = run(place, command, "--only", "")
    assert result.exit_code == 2
    assert not (place / "work").exists()


def test_a_pattern_that_fits_no_drafter_is_wrong_usage(place: Path) -> None:
    result = run(place, "plan", "--only", "tiny/NOPE*")
    assert result.exit_code == 2
    assert "tiny/NOPE*" in result.output


def test_a_wrong_catalogue_is_told_by_its_lines(place: Path) -> None:
    path = place / "catalogue.yaml"
    path.write_text(path.read_text().replace("route: gate", "route: Gate!"))
    result = run(place, "plan")
    assert "families.DFlash.route" in str(result.exception)
