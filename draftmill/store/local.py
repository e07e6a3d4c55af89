"""A store in a local folder: temporary file, fsync, exclusive link, fsync of the folder.

Layout: an object is the file ROOT/<key>. ROOT/.draftmill/tmp holds files that are being written, each locked (flock) by
its writer, so that one without a living writer can be told and swept; ROOT/.draftmill/lock serializes `replace`.
Needs hard links: a link, unlike a rename, never overwrites.
"""

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from draftmill.digest import CHUNK, sha256_file
from draftmill.new_files import NO_LINKS
from draftmill.outcome import BadConfiguration, InputOutput, MillError, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.store.bodies import Body, size_of, verified
from draftmill.store.endings import changed, missing
from draftmill.store.interface import Check, Creation, Entry, Head, Promises
from draftmill.store.keys import check_key, check_prefix
from draftmill.whole_file import sync_folder

HIDDEN = ".draftmill"


class LocalStore:
    """A `Store` below `root`, which is made when the first object is written. Its promises hold by construction."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.name = str(self.root)
        self.promises = Promises(conditional_complete=True, conditional_replace=True, checksums=True, metadata=True)

    def __repr__(self) -> str:
        return f"LocalStore({self.name!r})"

    def where(self, key: str) -> str:
        return str(self.root / check_key(key))

    def note_uploads(self, folder: Path) -> None:
        """A copy that ended early is made anew."""

    def create(self, key: str, body: Body, sha256: str, progress: Progress = silent) -> Creation:
        target = self.root / check_key(key)
        with _explained(self.where(key)):
            if not target.exists():
                with self._temporary() as (partial, descriptor):
                    size = _copy(body, descriptor, sha256, key, progress)
                    os.fsync(descriptor)
                    if _link(partial, target):
                        return Creation(True, Head(key, size, sha256, sha256))
        existing = self.head(key)
        if existing is None:
            raise changed(self.where(key))
        return Creation(False, existing)

    def replace(self, key: str, data: bytes, if_match: str | None) -> str:
        target = self.root / check_key(key)
        sha256 = hashlib.sha256(data).hexdigest()
        with _explained(self.where(key)), self._lock():
            existing = self.head(key)
            if (existing.etag if existing else None) != if_match:
                raise changed(self.where(key))
            with self._temporary() as (partial, descriptor):
                _copy(data, descriptor, sha256, key, silent)
                os.fsync(descriptor)
                if if_match is None:
                    if not _link(partial, target):
                        raise changed(self.where(key))
                else:
                    os.rename(partial, target)
                    sync_folder(target.parent)
        return sha256

    def head(self, key: str) -> Head | None:
        path = self.root / check_key(key)
        with _explained(self.where(key)):
            if path.is_dir():
                raise Refused(
                    Refusal(
                        "store.key_beside_prefix",
                        key,
                        "a folder",
                        "a file or nothing",
                        f"{path} is a folder, so that no object can have this name; choose another name.",
                    )
                )
            try:
                sha256 = sha256_file(path)
                return Head(key, path.stat().st_size, sha256, sha256)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """As the interface says, but nothing is recorded beside a file: compare with the manifest's sha256."""
        path = self.root / check_key(key)
        with _explained(self.where(key)):
            try:
                file = path.open("rb", buffering=0)
            except (FileNotFoundError, NotADirectoryError):
                raise missing(str(path)) from None
            with file:
                file.seek(start)
                left = None if stop is None else stop - start
                while (left is None or left > 0) and (piece := file.read(CHUNK if left is None else min(CHUNK, left))):
                    left = None if left is None else left - len(piece)
                    yield piece

    def gives_ranges(self, key: str) -> bool:
        return True

    def url(self, key: str, expires_s: int) -> tuple[str, int | None]:
        path = self.root / check_key(key)
        with _explained(self.where(key)):
            if not path.is_file():
                raise missing(str(path))
        return path.as_uri(), None

    def entries(self, prefix: str) -> Iterator[Entry]:
        check_prefix(prefix)
        with _explained(self.name):
            found = []
            for folder, folders, names in os.walk(self.root / prefix.rpartition("/")[0]):
                folders[:] = [name for name in folders if name != HIDDEN]
                for name in names:
                    path = Path(folder, name)
                    key = path.relative_to(self.root).as_posix()
                    if key.startswith(prefix):
                        status = path.stat()
                        found.append(Entry(key, status.st_size, status.st_mtime))
        yield from sorted(found, key=lambda entry: entry.key)

    def delete(self, key: str) -> None:
        path = self.root / check_key(key)
        with _explained(self.where(key)):
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
            with suppress(OSError):  # a folder that is not empty stays
                for folder in path.parents[: len(path.relative_to(self.root).parts) - 1]:
                    folder.rmdir()

    def sweep(self, *, dry: bool = False) -> list[str]:
        found = []
        with _explained(self.name):
            for path in (self.root / HIDDEN / "tmp").glob("*"):
                with suppress(FileNotFoundError, BlockingIOError):
                    descriptor = os.open(path, os.O_RDONLY)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        if not dry:
                            path.unlink()
                        found.append(path.relative_to(self.root).as_posix())
                    finally:
                        os.close(descriptor)
        return found

    def identity(self) -> list[str]:
        with _explained(self.name):
            self.root.mkdir(parents=True, exist_ok=True)
            return ["file", str(self.root.resolve()), str(self.root.stat().st_dev)]

    def own_checks(self, folder: str) -> Iterator[Check]:
        key = f"{folder}/wrong"
        try:
            self.create(key, b"some bytes", "0" * 64)
        except InputOutput:
            yield Check("checksum", "ok", "a body with another sha256 was turned away")
        else:
            yield Check("checksum", "refused", "a body with another sha256 was written", "Bytes are not verified here.")
        for name in ("conditional_complete", "metadata", "key_beside_prefix"):
            yield Check(name, "not applicable", "a folder of files")

    @contextmanager
    def _temporary(self) -> Iterator[tuple[Path, int]]:
        """A locked file in the hidden folder: its path and an open descriptor. It is gone afterwards."""
        folder = self.root / HIDDEN / "tmp"
        _make_folders(folder)
        while True:
            path = folder / secrets.token_hex(8)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                break
            os.close(descriptor)  # swept between its creation and its lock
        try:
            yield path, descriptor
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        _make_folders(self.root / HIDDEN)
        descriptor = os.open(self.root / HIDDEN / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _copy(body: Body, descriptor: int, sha256: str, key: str, progress: Progress) -> int:
    size = size_of(body)
    done = 0
    for piece in verified(body, sha256):
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
        done += len(piece)
        progress(key, done, size)
    return done


def _link(partial: Path, target: Path) -> bool:
    """Gives the finished file its name; False when the name is taken."""
    for _ in range(100):
        _make_folders(target.parent)
        try:
            os.link(partial, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue  # a concurrent delete removed the empty folder
        except OSError as error:
            if error.errno in NO_LINKS:
                raise BadConfiguration(
                    f"The filesystem of {target} has no hard links, which a store needs so that nothing is ever "
                    "overwritten; put the store on another filesystem.",
                    code="store.no_hard_links",
                    where=str(target),
                ) from error
            raise
        sync_folder(target.parent)
        return True
    raise changed(str(target))


def _make_folders(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except MillError:
        raise
    except OSError as error:
        advice = {
            errno.ENOSPC: "free some space there and repeat",
            errno.EDQUOT: "your quota there is used up; free some of it and repeat",
            errno.EACCES: "give yourself the right to write there, or choose another --store",
            errno.EPERM: "give yourself the right to write there, or choose another --store",
            errno.EROFS: "it is mounted read-only; choose another --store",
            errno.ENOTDIR: "a file stands where a folder is needed; move it away",
            errno.EEXIST: "a file stands where a folder is needed; move it away",
        }.get(error.errno or 0, "look at the disk, then repeat")
        code = "store.full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "store.io"
        raise InputOutput(f"{where}: {error.strerror}; {advice}.", code=code, where=where) from error
