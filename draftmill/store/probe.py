"""What a store really does, found out before it is trusted.

Several S3 servers answer 200 to a conditional create and overwrite. So the promises that publishing rests on are tried
out, with a few small objects below `probe/`, and a store is taken, taken with named downgrades, or refused by name.
"""

import hashlib
import json
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from draftmill.digest import sha256_json
from draftmill.outcome import MillError, Refusal, Refused
from draftmill.store.interface import Check, Promises, Status, Store
from draftmill.store.reading import get
from draftmill.whole_file import write_whole

PROBE_VERSION = 1
RACERS = 8
REMEMBERED_S = 7 * 86400
LEFT_OVER_S = 3600
ROOT = "probe/"
TURNED_AWAY = "every conditional create was turned away:"

# What follows when a check does not hold: the status it gives, and what that means for the operator.
CONSEQUENCES: dict[str, tuple[Status, str]] = {
    "conditional_create": (
        "refused",
        "Two publishers would overwrite each other, so that a manifest commits nothing. Use a server that honours "
        "If-None-Match on PUT (SeaweedFS, Ceph RGW, AWS S3), or a local folder.",
    ),
    "read_back": ("refused", "What was written does not come back. Look at the server before anything is kept there."),
    "listing": (
        "refused",
        "What is in the store cannot be seen. Allow listing (s3:ListBucket), or use another server.",
    ),
    "conditional_complete": (
        "downgraded",
        "A big file is protected by a look just before its upload is completed, not by the server. Harmless as long as "
        "only draftmill writes here: its big files have one content per name.",
    ),
    "conditional_replace": (
        "downgraded",
        "Two runs that update index.json at the same moment can lose one update. Run one catalogue at a time.",
    ),
    "checksum": (
        "downgraded",
        "The server does not notice bytes that were damaged on their way. Every published object is read back and "
        "hashed, which takes as long again as writing it.",
    ),
    "metadata": (
        "downgraded",
        "The recorded sha256 is lost. Every published object is read back and hashed; readers need the manifest.",
    ),
    "metadata_case": (
        "downgraded",
        "Names of metadata change their case. draftmill does not mind; other readers of x-amz-meta-sha256 might.",
    ),
    "range": (
        "downgraded",
        "Ranges are not answered with 206: a client that resumes a download starts again from the first byte.",
    ),
    "key_case": (
        "downgraded",
        "Keys that differ only in case are one object here. draftmill refuses such names within one publication.",
    ),
    "key_beside_prefix": (
        "downgraded",
        "An object `a` cannot lie beside `a/b`. draftmill writes no such keys; other programs should not share this "
        "store.",
    ),
    "deletion": ("downgraded", "Objects cannot be deleted: the probe's own, below probe/, stay."),
}

Verdict = Literal["ok", "downgraded", "refused"]


def finding(name: str, held: bool, measured: str) -> Check:
    """A check's outcome by its name; what follows from it is written in CONSEQUENCES."""
    status, meaning = CONSEQUENCES[name]
    return Check(name, "ok", measured) if held else Check(name, status, measured, meaning)


@dataclass(frozen=True)
class Probe:
    """What was found: the store's name, the server's own name for itself, the checks."""

    store: str
    server: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        found = {check.status for check in self.checks}
        return "refused" if "refused" in found else "downgraded" if "downgraded" in found else "ok"

    @property
    def promises(self) -> Promises:
        broken = {check.name for check in self.checks if check.status in ("downgraded", "refused")}
        return Promises(
            **{name: name not in broken for name in ("conditional_complete", "conditional_replace", "metadata")},
            checksums="checksum" not in broken,
        )

    def downgrades(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == "downgraded")

    def require(self) -> None:
        """Raises Refused with every check that rules the store out."""
        refusals = [
            Refusal(f"store.{check.name}", self.store, check.measured, "the promise is kept", check.meaning)
            for check in self.checks
            if check.status == "refused"
        ]
        if refusals:
            raise Refused(*refusals)


def probe(store: Store) -> Probe:
    """Tries the store out with a few small objects (about a second), and removes them.

    Raises what the store raises when it cannot be used at all: no connection, no bucket, no permission.
    """
    _, *_, server = store.identity()
    folder = f"{ROOT}{int(time.time())}-{secrets.token_hex(4)}"
    checks: list[Check] = []
    try:
        checks.append(_conditional_create(store, f"{folder}/create"))
        if not checks[0].measured.startswith(TURNED_AWAY):
            checks.append(_read_back(store, f"{folder}/read"))
            checks += store.own_checks(folder)
            checks.append(_listing(store, f"{folder}/listed"))
            checks.append(_key_case(store, f"{folder}/case"))
    finally:
        deletion = _clean(store, folder)
    return Probe(store.name, server, (*checks, deletion))


def ready_store(store: Store, memory: Path) -> Probe:
    """Makes a store ready for use: probed once per endpoint, bucket and server, remembered below `memory` for a week.

    Sets `store.promises` and gives what was found, so that the caller can tell the downgrades. A refusal is not
    remembered. Unfinished uploads are noted there too, see `Store.note_uploads`.
    Raises Refused, and what `probe` raises.
    """
    file = memory / f"{sha256_json([PROBE_VERSION, *store.identity()])[:32]}.json"
    found = _remembered(file)
    if found is None:
        found = probe(store)
        found.require()
        _remember(file, found)
    store.promises = found.promises
    store.note_uploads(memory / "uploads")
    store.sweep()
    return found


def _conditional_create(store: Store, key: str) -> Check:
    bodies = [f"racer {number}".encode() for number in range(RACERS)]

    def race(body: bytes) -> bool | MillError:
        try:
            return store.create(key, body, hashlib.sha256(body).hexdigest()).created
        except MillError as error:
            return error

    with ThreadPoolExecutor(RACERS) as pool:
        ends = list(pool.map(race, bodies))
    if errors := [end for end in ends if isinstance(end, MillError)]:
        if len(errors) < RACERS or any(error.code != "store.unexpected_answer" for error in errors):
            raise errors[0]
        return finding("conditional_create", False, f"{TURNED_AWAY} {errors[0]}")
    winners = [body for body, end in zip(bodies, ends, strict=True) if end]
    again = store.create(key, b"late", hashlib.sha256(b"late").hexdigest()).created
    kept = len(winners) == 1 and get(store, key) == winners[0]
    return finding(
        "conditional_create",
        kept and not again,
        f"{len(winners)} winners of {RACERS}, a later create {'overwrote' if again else 'was turned away'}",
    )


def _read_back(store: Store, key: str) -> Check:
    body = os.urandom(70_000)
    store.create(key, body, hashlib.sha256(body).hexdigest())
    head = store.head(key)
    same = (
        get(store, key) == body
        and b"".join(store.read(key, 1000, 3000)) == body[1000:3000]
        and head is not None
        and head.size == len(body)
    )
    return finding("read_back", same, "the same bytes" if same else "other bytes")


def _listing(store: Store, key: str) -> Check:
    keys = [f"{key}/{name}" for name in ("a", "b/c", "d")]
    for name in keys:
        store.create(name, name.encode(), hashlib.sha256(name.encode()).hexdigest())
    found = [entry.key for entry in store.entries(f"{key}/")]
    return finding("listing", found == keys, f"{len(set(found) & set(keys))} of {len(keys)} keys")


def _key_case(store: Store, key: str) -> Check:
    for name in (f"{key}/x", f"{key}/X"):
        store.create(name, name.encode(), hashlib.sha256(name.encode()).hexdigest())
    both = get(store, f"{key}/x") != get(store, f"{key}/X")
    return finding("key_case", both, "two objects" if both else "one object for both")


def _clean(store: Store, folder: str) -> Check:
    """Deletes this probe's objects, and those of probes that were killed."""
    try:
        for entry in list(store.entries(ROOT)):
            started = entry.key.removeprefix(ROOT).partition("-")[0]
            if entry.key.startswith(f"{folder}/") or (started.isdigit() and int(started) < time.time() - LEFT_OVER_S):
                store.delete(entry.key)
        left = len(list(store.entries(f"{folder}/")))
    except MillError as error:
        return finding("deletion", False, str(error))
    return finding("deletion", left == 0, f"{left} objects left")


def _remembered(file: Path) -> Probe | None:
    with suppress(OSError, ValidationError):
        if file.stat().st_mtime > time.time() - REMEMBERED_S:
            return TypeAdapter(Probe).validate_json(file.read_bytes())
    return None


def _remember(file: Path, found: Probe) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(TypeAdapter(Probe).dump_python(found), indent=1))
