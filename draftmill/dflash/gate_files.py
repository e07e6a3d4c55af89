"""The files of a package as the gate opens them: inside the folder, regular, readable, and the same at the end.

Nothing is followed out of the package (a Hugging Face cache, whose snapshots are links into its blobs, excepted), no
pipe is waited for, and every file that was opened is looked at again when the gate is done.
"""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_result import SETTLED, File
from draftmill.hub.local import belongs
from draftmill.outcome import Refusal

PIECE = 1 << 22
HOLLOW = 64 << 20
"""Bytes of a file without storage from which on it is refused unread: a size costs nothing to claim."""
ABSENT = (errno.ENOENT, errno.ENOTDIR)
CLOSED = -1
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_folder(path: Path) -> bool:
    """Whether a folder is there. One that cannot be looked at counts: the gate then says what cannot be read."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


@dataclass
class Opened:
    """An open file, closed once its digest is known. before: its state when it was opened. sha256: once it was read to
    its end. unread: it is refused by its size or header, and not read."""

    name: str
    path: Path
    descriptor: int
    before: os.stat_result
    sha256: str | None = None
    unread: bool = False

    @property
    def size(self) -> int:
        return self.before.st_size

    def close(self) -> None:
        if self.descriptor != CLOSED:
            os.close(self.descriptor)
            self.descriptor = CLOSED


class PackageFiles:
    """Opens files of a folder, keeps them open, and tells what happened to them. Bad ones go into the ledger."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.folder = folder
        self.opened: dict[str, Opened] = {}
        self.bytes_read = 0
        self._ledger = ledger
        self._unreadable: list[str] = []
        self._linked: list[str] = []
        self._closed: set[str] = set()
        self._holes: set[str] = set()

    def absent(self, name: str) -> bool:
        """Whether surely nothing has this name, not even a link; what cannot be looked at is for `open` to tell."""
        try:
            os.lstat(self.folder / name)
        except OSError as error:
            return error.errno in ABSENT
        return False

    def open(self, name: str) -> Opened | None:
        """The file, or None when it may not or cannot be read; a name is opened once."""
        if name in self.opened or name in self._closed:
            return self.opened.get(name)
        self._closed.add(name)
        try:
            path = (self.folder / name).resolve()
        except (OSError, RuntimeError) as error:
            return self._refused(name, f"a link that leads nowhere ({error})")
        if os.path.islink(self.folder / name):
            self._linked.append(name)
        if not belongs(path, self.folder):
            self._ledger.refuse(
                "files.links",
                Refusal(
                    "gate.link",
                    name,
                    str(path),
                    "a file inside the package",
                    "The file is a link out of the package; nothing outside it is read. Copy the file itself into it.",
                ),
            )
            return None
        try:
            # Looked at before it is opened: a socket cannot be, and a device may do something.
            if what := _irregular(os.stat(path).st_mode):
                return self._refused(name, what)
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            return self._refused(name, "a link that leads nowhere")
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self._refused(name, "a link that leads back to itself")
            self.unreadable(name, error)
            return None
        status = os.fstat(descriptor)
        if what := _irregular(status.st_mode):
            os.close(descriptor)
            return self._refused(name, what)
        self.opened[name] = Opened(name, path, descriptor, status)
        return self.opened[name]

    def unreadable(self, name: str, error: OSError) -> None:
        """That is no fault of the package, but nothing can be said about it."""
        mend = (
            "give yourself the right to read it"
            if isinstance(error, PermissionError)
            else "look at the disk, and copy the package anew"
        )
        self._unreadable.append(f"{name} cannot be read ({error.strerror or error}): {mend}, then run the gate again")

    def _refused(self, name: str, what: str) -> Opened | None:
        sentence = f"This is {what}; put the file itself there."
        self._ledger.refuse("files.readable", Refusal("gate.not_regular_file", name, what, "a regular file", sentence))
        return None

    def content(self, file: Opened, limit: int) -> bytes | None:
        """A small file whole, with its digest; at most limit + 1 bytes. None when reading failed."""
        try:
            data = os.pread(file.descriptor, limit + 1, 0)
        except OSError as error:
            self.unreadable(file.name, error)
            return None
        self.bytes_read += len(data)
        if len(data) <= limit:
            file.sha256 = hashlib.sha256(data).hexdigest()
            file.close()
        return data

    def digest(self, file: Opened) -> str | None:
        """SHA-256 of a file, in bounded memory. None when reading failed, or the file is not to be read whole."""
        if file.sha256 is None:
            if not self.worth_reading(file):
                return None
            digest, offset = hashlib.sha256(), 0
            try:
                while piece := os.pread(file.descriptor, min(PIECE, file.size - offset), offset):
                    digest.update(piece)
                    offset += len(piece)
            except OSError as error:
                self.unreadable(file.name, error)
                return None
            self.bytes_read += offset
            file.sha256 = digest.hexdigest()
            file.close()  # a manifest may list more files than can be open
        return file.sha256

    def worth_reading(self, file: Opened) -> bool:
        """False when its bytes would be nearly all of them zeros that nobody wrote; then it is refused."""
        stored = file.before.st_blocks * 512
        hole = self.first_hole(file)
        if hole is not None and file.size - stored > HOLLOW:
            file.unread = True
            self.refuse_hole(file.name, hole, f", of {file.size:,} bytes {stored:,} are stored")
        return not file.unread

    def refuse_hole(self, name: str, hole: int, more: str = "") -> None:
        if name in self._holes:
            return
        self._holes.add(name)
        self._ledger.refuse(
            "files.whole",
            Refusal(
                "gate.sparse",
                name,
                f"nothing was written at byte {hole}{more}",
                "bytes everywhere",
                "The file is sparse: its size was set, and a part of it was never written, as a broken-off download or "
                "copy leaves it. Download it again.",
            ),
        )

    def first_hole(self, file: Opened) -> int | None:
        """Where the first part lies that was never written, None when there is none (or the system cannot tell)."""
        if not file.size:
            return None
        try:
            hole = os.lseek(file.descriptor, 0, os.SEEK_HOLE)
        except OSError:
            return None
        return hole if hole < file.size else None

    def as_records(self) -> tuple[File, ...]:
        return tuple(File(file.name, file.size, file.sha256) for _, file in sorted(self.opened.items()))

    def settle(self) -> None:
        """The outcomes of files.*, once everything was read. files.whole is the container's."""
        ledger = self._ledger
        names = sorted(self.opened)
        links = f", {len(self._linked)} through links that stay in it" if self._linked else ""
        ledger.passes("files.links", names, f"{len(names)} files of the package were opened{links}")
        changed = [change for file in self.opened.values() if (change := _change(file))]
        if changed:
            ledger.undetermined(SETTLED, changed, "; ".join(changed), withholds=True)
        elif names:
            ledger.passes(SETTLED, "unchanged", "size and time of every file are those of the start")
        if self._unreadable:
            ledger.undetermined("files.readable", self._unreadable, "; ".join(self._unreadable), withholds=True)
        elif names:
            unread = [file.name for file in self.opened.values() if file.unread]
            but = f"; {', '.join(unread)} was refused by its header or size, and not read on" if unread else ""
            ledger.passes("files.readable", names, "regular files" + (but or ", read to the end"))

    def close(self) -> None:
        for file in self.opened.values():
            file.close()


def _irregular(mode: int) -> str | None:
    """What a file is that is no regular one."""
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _change(file: Opened) -> str | None:
    try:
        there = os.stat(file.path)
        replaced = there.st_ino != file.before.st_ino
    except OSError:
        there, replaced = file.before, True
    now = os.fstat(file.descriptor) if file.descriptor != CLOSED else file.before if replaced else there
    wait = "wait until its writer is done, then run the gate again"
    if now.st_size > file.size:
        return f"{file.name} grew from {file.size} to {now.st_size} bytes while it was read: {wait}"
    if now.st_size < file.size:
        return f"{file.name} was cut from {file.size} to {now.st_size} bytes while it was read: {wait}"
    if now.st_mtime_ns != file.before.st_mtime_ns:
        return f"{file.name} was written to while it was read: {wait}"
    return f"{file.name} was replaced or removed while it was read: {wait}" if replaced else None
