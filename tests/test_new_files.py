"""Two files appear together or not at all, in place of nothing."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.new_files import new_files
from draftmill.place_beside import clear_left

WRITER = """
import os, signal, sys
from pathlib import Path
from draftmill import new_files
link, left = os.link, int(sys.argv[2])
def killed(*names):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    link(*names)
os.link = killed
out = Path(sys.argv[1])
with new_files.new_files(out, out.with_name("account")) as written:
    for path in written:
        path.write_text("whole")
"""


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def write(out: Path, text: str = "whole") -> None:
    with new_files(out, out.with_name("account")) as written:
        for path in written:
            path.write_text(text)


def test_both_appear(tmp_path: Path) -> None:
    write(tmp_path / "out")
    assert names(tmp_path) == ["account", "out"]
    assert (tmp_path / "out").stat().st_nlink == 1


@pytest.mark.parametrize("links", [0, 1])
def test_what_a_killed_writer_had_given_is_taken_back(links: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", WRITER, out, str(links)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 1 + links
    write(out, "again")
    assert names(tmp_path) == ["account", "out"]
    assert {(tmp_path / name).read_text() for name in names(tmp_path)} == {"again"}


def test_what_is_complete_stays_when_its_place_is_cleared(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out)
    left = tmp_path / ".out.01234567.draftmill"
    left.mkdir()
    for name in ("out", "account"):
        os.link(tmp_path / name, left / name)
    clear_left(out)
    assert names(tmp_path) == ["account", "out"]


@pytest.mark.parametrize("taken", ["out", "account"])
def test_a_name_that_was_taken_meanwhile_is_left_as_it_is(taken: str, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError), new_files(tmp_path / "out", tmp_path / "account") as written:
        for path in written:
            path.write_text("mine")
        (tmp_path / taken).write_text("another's")
    assert names(tmp_path) == [taken]
    assert (tmp_path / taken).read_text() == "another's"


@pytest.mark.parametrize("taken", [False, True])
def test_a_filesystem_without_hard_links_has_them_too(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    if not taken:
        write(tmp_path / "out")
        assert names(tmp_path) == ["account", "out"]
        return
    (tmp_path / "out").write_text("another's")
    with pytest.raises(FileExistsError):
        write(tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_one_that_was_not_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), new_files(tmp_path / "out", tmp_path / "account") as (out, _):
        out.write_text("alone")
    assert names(tmp_path) == []
