"""A file is whole or not there."""

from pathlib import Path

import pytest

from draftmill.whole_file import whole_file, write_whole


def test_a_file_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with whole_file(target) as beside:
        beside.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_what_fails_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(target) as beside:
        beside.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_written_is_an_error_and_not_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_text_is_written_as_utf8(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "é")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9"
