"""The progress bar: on a terminal it shows, in a pipe there is not a byte of it."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

from draftmill.store.local import LocalStore
from tests.store.drafters import contents, publish_drafter
from tests.support.waiting import GUARD_S


def pull(tmp_path: Path, stderr: int, out: str) -> None:
    program = "import typer\nfrom draftmill.cli.pull import pull\ntyper.run(pull)"
    command = [sys.executable, "-c", program, "amd/PARD-Tiny", "-o", str(tmp_path / out), "--json"]
    environment = {**os.environ, "DRAFTMILL_STORE": str(tmp_path / "store"), "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, check=True, timeout=120)


def test_a_terminal_gets_a_bar_and_a_pipe_nothing(tmp_path: Path) -> None:
    publish_drafter(LocalStore(tmp_path / "store"), tmp_path / "source", files=contents(["F16"], size=1 << 20))
    with (tmp_path / "stderr").open("wb") as piped:
        pull(tmp_path, piped.fileno(), "piped")
    assert (tmp_path / "stderr").read_bytes() == b""

    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 1 << 16):
                shown.append(piece)
        except OSError:  # how Linux tells that the other side was closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    pull(tmp_path, theirs, "shown")
    os.close(theirs)
    reader.join(GUARD_S)
    os.close(ours)
    text = b"".join(shown).decode()
    assert "amd/PARD-Tiny" in text
    assert "1.0/1.0 MB" in text
    assert "━" in text
