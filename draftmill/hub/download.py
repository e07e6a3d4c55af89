"""Files of a listing into a folder: hashed as they stream, compared, synced, and only then given their name.

On disk: `<name>.partial` while a file is unfinished, `<name>` when its bytes are the listed ones.
A later call continues: what is there is hashed again from disk, partial files by their prefix and finished ones whole.
"""

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from draftmill.hub.listing import Listing
from draftmill.hub.local import LocalFiles, mirror_folder
from draftmill.hub.paths import PARTIAL, check_paths
from draftmill.hub.patience import Pause
from draftmill.hub.remote import HubFiles
from draftmill.hub.source import Hub, Mirror, Source
from draftmill.hub.transfer import Files, Stopped, Tally, Together, Transfer, no_space
from draftmill.outcome import BadConfiguration, Refused
from draftmill.progress import Progress, silent
from draftmill.whole_file import sync_folder

THREADS = 4
MARGIN = 64 << 20


@dataclass(frozen=True)
class Received:
    """Bytes that came over the wire, and bytes that were there already and verified."""

    received: int
    kept: int


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def download(
    listing: Listing,
    source: Source,
    folder: Path,
    *,
    progress: Progress = silent,
    pause: Pause | None = None,
    free: Callable[[Path], int] = free_bytes,
    threads: int = THREADS,
) -> Received:
    """Every file of the listing into the folder, or an exception and no unverified file under its final name.

    Raises Refused (a digest, size or path is wrong; its partial file is gone), NotPermitted, Temporary, Unavailable,
    InputOutput (no space, and how much is needed) and BadConfiguration (a folder that holds other things). A
    refused file does not stop the others, so that all are named; any other failure does, and partial files then stay
    for the next call.
    """
    if findings := check_paths(file.path for file in listing.files):
        raise Refused(*findings)
    _check_folder(listing, folder)
    _check_space(listing, folder, free)
    together = Together(Tally(listing.size, progress), threading.Event(), pause)
    files = open_files(listing, source)
    transfers = [Transfer(file, folder / file.path, files, together) for file in listing.files]
    failures: list[BaseException] = []

    def run(transfer: Transfer) -> None:
        try:
            transfer.run()
        except Stopped:
            pass
        except BaseException as failure:
            failures.append(failure)
            # A refusal names every file at fault; whatever else happens would happen to the other files too.
            if not isinstance(failure, Refused):
                together.stop.set()

    with ThreadPoolExecutor(threads, "download") as pool:
        try:
            list(pool.map(run, sorted(transfers, key=lambda t: -t.file.size)))
        finally:
            together.stop.set()
    if failures:
        raise _worst(failures)
    sync_folder(folder)
    return Received(sum(t.received for t in transfers), sum(t.kept for t in transfers))


def open_files(listing: Listing, source: Source) -> Files:
    """Raises Refused when a mirror lacks the repository, BadConfiguration when source and listing do not fit."""
    if isinstance(source, Hub):
        if listing.source != "hub" or listing.repo is None:
            raise BadConfiguration(f"A listing of a {listing.source} cannot come from a hub.", code="hub.source")
        return HubFiles(source, listing)
    if isinstance(source, Mirror):
        return LocalFiles(mirror_folder(source.root, listing.repo or ""))
    return LocalFiles(source.root)


def _check_folder(listing: Listing, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ours = {name for file in listing.files for name in (file.path, file.path + PARTIAL)}
    if others := sorted(p.name for p in folder.iterdir() if p.name not in ours):
        sentence = f"{folder} holds other files ({', '.join(others[:5])}). Use an empty folder."
        raise BadConfiguration(sentence, code="hub.folder_in_use", where=str(folder))


def _check_space(listing: Listing, folder: Path, free: Callable[[Path], int]) -> None:
    present = sum(min(file.size, _size_there(folder / file.path)) for file in listing.files)
    needed, there = listing.size - present + MARGIN, free(folder)
    if needed > there:
        raise no_space(folder, needed, there)


def _size_there(path: Path) -> int:
    for name in (path, path.with_name(path.name + PARTIAL)):
        if name.exists():
            return name.stat().st_size
    return 0


def _worst(failures: list[BaseException]) -> BaseException:
    """Refusals of several files are one; they are final, so they come before what may pass."""
    refusals = [refusal for failure in failures if isinstance(failure, Refused) for refusal in failure.refusals]
    return Refused(*refusals) if refusals else failures[0]
