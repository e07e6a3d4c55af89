"""Nothing of a killed writer outlasts the next one, and nothing of anybody else is touched."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftmill.place_beside import place_beside
from draftmill.whole_file import write_whole
from draftmill.whole_folder import whole_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from draftmill.whole_{0} import whole_{0}
with whole_{0}(Path(sys.argv[1])) as beside:
    (beside if {0!r} == "file" else beside / "a").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_killed_writer_left_goes_with_the_next_one(what: str, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED.format(what), tmp_path / "x"], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".x.") and len(list(left.rglob("*"))) == 1
    write_whole(tmp_path / "other", "another name's")
    assert left.is_dir()
    if what == "file":
        write_whole(tmp_path / "x", "whole")
    else:
        with whole_folder(tmp_path / "x") as partial:
            (partial / "a").write_bytes(b"whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "x"]


def test_a_living_writers_folder_stays(tmp_path: Path) -> None:
    with place_beside(tmp_path / "x") as first:
        (first / "a").write_bytes(b"a")
        with place_beside(tmp_path / "x") as second:
            assert first != second
            assert (first / "a").read_bytes() == b"a"
    assert list(tmp_path.iterdir()) == []


def test_writers_of_one_name_do_not_take_one_anothers_places(tmp_path: Path) -> None:
    """A place can be seen before it is locked."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_whole(tmp_path / "x", f"{number:09}"), range(4000)))
    assert [each.name for each in tmp_path.iterdir()] == ["x"]
    assert len((tmp_path / "x").read_text()) == 9


def test_nothing_but_such_a_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kept" / "a").mkdir(parents=True)
    (tmp_path / ".x.backup").mkdir()
    (tmp_path / ".xy.01234567.draftmill").mkdir()
    (tmp_path / ".x.01234567.draftmill").write_text("a file")
    (tmp_path / ".x.abcdefgh.draftmill").symlink_to(tmp_path / "kept")
    before = sorted(map(str, tmp_path.rglob("*")))
    write_whole(tmp_path / "x", "whole")
    assert sorted(map(str, tmp_path.rglob("*"))) == sorted([*before, str(tmp_path / "x")])


def test_a_folder_that_is_for_writing_only_is_written(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from draftmill.whole_file import write_whole; os.setuid(65532); "
        "write_whole(Path('x'), 'whole')"
    )
    shared = Path(f"/var/tmp/{tmp_path.name}-{os.getpid()}")  # pytest's own folders are closed to other users
    shared.mkdir()
    try:
        os.chown(shared, 65532, -1)
        shared.chmod(0o300)
        subprocess.run([sys.executable, "-c", code], cwd=shared, check=True)
        assert (shared / "x").read_text() == "whole"
    finally:
        for each in shared.iterdir():
            each.unlink()
        shared.rmdir()
