"""What a store is: a small set of verbs over immutable objects, and what an object and a finding about a store are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from draftmill.progress import Progress, silent
from draftmill.store.bodies import Body


@dataclass(frozen=True)
class Head:
    """An object without its bytes. `size` in bytes; `sha256` None when the object carries none (another program's);
    `etag` is opaque and only good for `Store.replace`."""

    key: str
    size: int
    sha256: str | None
    etag: str


@dataclass(frozen=True)
class Creation:
    """How a create ended: `created`, or somebody was first and `head` is what is there."""

    created: bool
    head: Head


@dataclass(frozen=True)
class Entry:
    """A line of a listing; `size` in bytes, `modified` in seconds since the epoch, by the store's clock."""

    key: str
    size: int
    modified: float


@dataclass(frozen=True)
class Promises:
    """What the probe saw a store keep. What is not promised, a store makes up for as well as it can.

    conditional_complete: a multipart upload completes only if the key is absent; conditional_replace: If-Match holds;
    checksums: a body that does not match its checksum is turned away; metadata: the recorded sha256 comes back.
    """

    conditional_complete: bool = False
    conditional_replace: bool = False
    checksums: bool = False
    metadata: bool = False


Status = Literal["ok", "downgraded", "refused", "not applicable"]


@dataclass(frozen=True)
class Check:
    """One finding of the probe: `measured` is what the store did, `meaning` what follows from it ("" when ok)."""

    name: str
    status: Status
    measured: str
    meaning: str = ""


class Store(Protocol):
    """Objects by key (see `keys.check_key`). Every verb raises a `MillError` whose sentence says what to do.

    `name` is for people and holds no secret. `promises` is what `probe.ready_store` found, nothing before.
    """

    name: str
    promises: Promises

    def where(self, key: str) -> str:
        """Where a person finds the object: a path or an s3:// address."""

    def note_uploads(self, folder: Path) -> None:
        """From now on unfinished uploads are noted below `folder`, and the next try on this machine goes on with them
        where the store can do that."""

    def create(self, key: str, body: Body, sha256: str, progress: Progress = silent) -> Creation:
        """Creates the object if the key is absent, whole or not at all. Never overwrites.

        Raises InputOutput("store.source_differs") when the body has not this sha256; nothing is created then.
        """

    def replace(self, key: str, data: bytes, if_match: str | None) -> str:
        """Replaces the object whose etag is `if_match` (None: creates it) and gives the new etag.

        Raises Temporary("store.changed") when somebody else was first: read again, merge, try again.
        """

    def head(self, key: str) -> Head | None:
        """The object's head, or None when there is none. A local folder hashes the file for it."""

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to before `stop`, in pieces. A whole read is compared with the recorded sha256 and
        raises InputOutput("store.damaged") after the last piece when it differs; `store.missing` when there is none."""

    def gives_ranges(self, key: str) -> bool:
        """Whether a read from the middle costs no more than what it gives. Else the server sends the whole object each
        time, and whoever wants much of it reads it once, from the start."""

    def url(self, key: str, expires_s: int) -> tuple[str, int | None]:
        """An address that needs no credentials, and how many seconds it lasts (None: for ever). Raises `store.missing`
        when there is no object, BadConfiguration("store.url_expiry") for a time that the store does not offer."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Every object whose key starts with `prefix`, by key in ASCII order."""

    def delete(self, key: str) -> None:
        """Removes the object; fine when there is none."""

    def sweep(self, *, dry: bool = False) -> list[str]:
        """Removes what killed writers left behind, never what a living one is writing, and names it. dry: names it."""

    def identity(self) -> list[str]:
        """What a probe's result is remembered under: where the store is and which server answers."""

    def own_checks(self, folder: str) -> Iterator[Check]:
        """The probe's checks that only this kind of store can make, with objects below the key `folder`."""
