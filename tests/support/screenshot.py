"""The pictures of the documentation: a catalogue run over the small hub, and its table as Chromium draws it.

python -m tests.support.screenshot --store shots      # after `./mill demo --store shots`, for its measured drafter

Writes docs/images/index.png and index-dark.png.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import Tab, open_browser
from tests.support.catalogue_hub import write_all, write_catalogue
from tests.support.hub_server import misbehaving_hub

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 1280


def run_catalogue(store: Path, folder: Path) -> None:
    write_all(folder / "hub")
    with misbehaving_hub(folder / "hub") as hub:
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.endpoint,
            "DRAFTMILL_CATALOGUE": str(write_catalogue(folder)),
            "DRAFTMILL_STORE": str(store),
            "DRAFTMILL_WORK": str(folder / "work"),
        }
        mill = str(Path(sys.executable).with_name("draftmill"))
        for verb in (["catalogue", "run"], ["store", "index"]):
            subprocess.run([mill, *verb], env=environment, check=True)


def take_pictures(page: Path, profile: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    with open_browser(profile) as browser:
        for name, dark in (("index.png", False), ("index-dark.png", True)):
            tab = Tab(browser, WIDTH, dark=dark).open(page.as_uri())
            tab.resize(WIDTH, tab.run("Math.ceil(document.querySelector('.notes').getBoundingClientRect().top) - 16"))
            (IMAGES / name).write_bytes(tab.screenshot())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    store = parser.parse_args().store.absolute()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run_catalogue(store, Path(folder))
        take_pictures(store / "index.html", Path(folder) / "profile")


if __name__ == "__main__":
    main()
