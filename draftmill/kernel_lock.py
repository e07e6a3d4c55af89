"""A lock that the kernel frees with its holder (flock), however that ends: nothing has to be repaired.

The file says who holds it, {"pid", "host", "run", "since"}, which is only true while the lock is held. Every user can
open it. A container that is given the file has the same lock: a lock is on a file, not on its name.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from draftmill.outcome import BadConfiguration, Temporary
from draftmill.progress import Progress, silent

FOR_ANYBODY = 0o1777
POLL_S = 0.2
_held: set[int] = set()


@contextlib.contextmanager
def hold(
    path: Path, what: str, *, run: str, wait_s: float = 0, progress: Progress = silent, code: str = "lock.held"
) -> Iterator[str]:
    """Holds `what`, for which the file stands; gives who held it before and did not live to let go, else "".

    run: whose work it is, for others to read. wait_s: how long to wait, in seconds, which `progress` counts. Raises
    Temporary (`code`) that says who holds it, and BadConfiguration where the file cannot be had.
    """
    started = time.monotonic()
    wait_s = max(wait_s, POLL_S)  # somebody may only have looked whether it is free
    while (descriptor := _try(path)) is None:
        waited = time.monotonic() - started
        if waited >= wait_s:
            sentence = f"{what} is held by {_recorded(path) or 'somebody'}; try again when that has ended."
            raise Temporary(sentence, code=code, where=str(path))
        progress(f"waiting for {what}, held by {_recorded(path)}, seconds", int(waited), int(wait_s))
        time.sleep(min(POLL_S, wait_s - waited))
    _held.add(descriptor)
    try:
        killed = _recorded(path)
        record = {
            "pid": os.getpid(),
            "host": socket.gethostname(),  # in a container its ID
            "run": run,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        _write(descriptor, json.dumps(record))
        yield killed
    finally:
        if descriptor in _held:  # not in a child that was forked inside the block
            _write(descriptor, "")
            _held.discard(descriptor)
            os.close(descriptor)


def make_lock(path: Path) -> None:
    """Makes the lock's file, free, where it is not there: a container can be given a file that exists."""
    os.close(_open(path))


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock now."""
    descriptor = _try(path)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def held_by(path: Path) -> str:
    """Who holds the lock now; empty when nobody does. Does not get into the way of one that is free."""
    who = _recorded(path)
    return who if who and not is_free(path) else ""


def _recorded(path: Path) -> str:
    """Who the record says; also of one that was killed."""
    try:
        record = json.loads(path.read_text())
        return f"run {record['run']} (process {record['pid']} on {record['host']}, since {record['since']})"
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def _try(path: Path) -> int | None:
    """An open descriptor that has the lock, or None when another has it. It is closed by an exec."""
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have cleared the folder: a lock on a file without a name keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int:
    """Opens or makes the file, for all users. A link is not followed: in a shared folder it may be anybody's."""
    try:
        _make_folder(path.parent)
        for flags in (0, os.O_CREAT | os.O_EXCL, 0):
            # Linux refuses O_CREAT for a file of another user in a sticky folder, so it is tried without first.
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o666)
            except (FileNotFoundError, FileExistsError):
                continue
            if flags:
                os.fchmod(descriptor, 0o666)  # whatever the umask is
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is no regular file", str(path))
            return descriptor
        raise FileNotFoundError(errno.ENOENT, "it comes and goes", str(path))
    except OSError as error:
        sentence = f"The lock {path} cannot be opened ({error.strerror}): let every user write there."
        raise BadConfiguration(sentence, code="lock.file", where=str(path)) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
    except FileExistsError:
        return
    folder.chmod(FOR_ANYBODY)


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _let_go() -> None:
    """In a forked child: a copy of the descriptor would keep the lock when its holder is gone."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
