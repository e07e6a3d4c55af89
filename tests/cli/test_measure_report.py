"""Where a measurement's report goes: looked at before the work, made when there is a report."""

import pytest
import typer

from draftmill.cli.measure_running import ready, report_written
from draftmill.outcome import InputOutput


def test_a_folder_is_made_for_a_report_and_not_before(tmp_path):
    place = tmp_path / "a" / "b"
    ready(place)
    assert list(tmp_path.iterdir()) == []
    with report_written(place):
        (place / "report.json").write_text("{}")
    ready(place)  # one that is there is as good


@pytest.mark.parametrize("place", ["file", "file/below", "link"])
def test_a_place_that_cannot_be_one_is_told_before_the_work(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(typer.BadParameter, match="nothing can be written into"):
        ready(tmp_path / place)


def test_a_folder_that_became_a_file_meanwhile_is_told(tmp_path):
    (tmp_path / "report").write_text("")
    with pytest.raises(InputOutput, match="name another folder"), report_written(tmp_path / "report"):
        pass
